"""Iceberg's JDBC catalog in PostgreSQL: a row for each table, which names its current metadata file. To replace that name is to commit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import errors, sql

from streamproof.sinks.iceberg.metadata import path_of

NAME = "lake"
"""What jobs of ours call the catalog."""


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
        query = sql.SQL("SELECT metadata_location FROM {} WHERE table_namespace = %s AND table_name = %s")
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            try:
                found = connection.execute(query.format(sql.Identifier(self.schema, "iceberg_tables")), [namespace, table]).fetchone()
            except (errors.UndefinedTable, errors.InvalidSchemaName):
                return None
        return None if found is None else path_of(found[0])

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
