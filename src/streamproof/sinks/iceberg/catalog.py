"""Iceberg's JDBC catalog in PostgreSQL: a row for each table, which names its current metadata file. To replace that name is to commit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict

from streamproof.evidence.folder import EvidenceError
from streamproof.sinks.iceberg.metadata import path_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

NAME = "lake"
"""What jobs of ours call the catalog; others choose a name of their own."""


@dataclass(frozen=True)
class Catalog:
    """Its tables lie in ``schema``. ``conninfo`` is PostgreSQL's address without a secret."""

    conninfo: str
    schema: str

    def create(self) -> None:
        """Make the schema. What the catalog keeps there it makes itself."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.schema)))

    def metadata(self, namespace: str, table: str) -> Path | None:
        """The current metadata file of a table; None where the catalog has no such table. Raises psycopg.Error."""
        found = self._said(namespace, table, "metadata_location")
        return None if found is None else path_of(found)

    def name_of(self, namespace: str, table: str) -> str | None:
        """What the job that made the table calls the catalog; None where there is no such table. Raises psycopg.Error."""
        return self._said(namespace, table, "catalog_name")

    def _said(self, namespace: str, table: str, column: str) -> str | None:
        """What a column of the table's row holds; None where there is no such table. Raises psycopg.Error."""
        query = sql.SQL("SELECT {} FROM {} WHERE table_namespace = %s AND table_name = %s")
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            try:
                named = query.format(sql.Identifier(column), sql.Identifier(self.schema, "iceberg_tables"))
                found = connection.execute(named, [namespace, table]).fetchone()
            except (errors.UndefinedTable, errors.InvalidSchemaName):
                return None
        return None if found is None else str(found[0])

    def tables(self) -> list[str]:
        """The names of the tables that there are."""
        query = sql.SQL("SELECT table_namespace || '.' || table_name FROM {} ORDER BY 1")
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            try:
                return [name for (name,) in connection.execute(query.format(sql.Identifier(self.schema, "iceberg_tables")))]
            except (errors.UndefinedTable, errors.InvalidSchemaName):
                return []

    def drop(self) -> None:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(self.schema)))


def opened(conninfo: str, schema: str, namespace: str, name: str) -> Table:
    """A table of a job, as another writer than the job: pyiceberg. Raises EvidenceError when there is none."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import NoSuchTableError

    found = conninfo_to_dict(conninfo)
    words: dict[str, str] = {name: str(found[name]) for name in ("passfile", "sslmode", "sslrootcert") if name in found}
    words["options"] = f"-csearch_path={schema}"
    uri = f"postgresql+psycopg://{found['user']}@{found['host']}:{found['port']}/{found['dbname']}?{urlencode(words)}"
    known_as = Catalog(conninfo, schema).name_of(namespace, name) or NAME
    try:
        return SqlCatalog(known_as, uri=uri, init_catalog_tables="false").load_table((namespace, name))
    except NoSuchTableError as error:
        raise EvidenceError(f"the catalog has no table {namespace}.{name}: {error}") from error
