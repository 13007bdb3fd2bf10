"""What a job was given, as a table for the SQL of an experiment: each field of a record is a column.

A run that is judged by a reference in SQL keeps the records that it sends in ``inputs.parquet``. It has one column, ``record``, the JSON
object. Row N is the record of sequence N, whoever sends it. The reference itself is ``reference.sql``.

Whole numbers are BIGINT, other numbers DOUBLE, texts VARCHAR; times are texts, for JSON has none. A query is evaluated in a database of its
own that reaches neither files nor a network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.histories import write_table

if TYPE_CHECKING:
    import duckdb

INPUTS = pa.schema([("record", pa.string())])
TABLE = "input"


class QueryError(ValueError):
    """A query of the user's own cannot be evaluated. The message says why, and which columns there are."""


def write(folder: RunFolder, records: Iterable[str]) -> None:
    write_table(folder.inputs, pa.table({"record": pa.array(list(records), pa.string())}, schema=INPUTS))


def read(folder: RunFolder) -> pa.Table:
    """Raises EvidenceError when it cannot be read."""
    try:
        return pq.read_table(folder.inputs, schema=INPUTS)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise EvidenceError(f"{folder.inputs} cannot be read as evidence: {error}") from error


@contextmanager
def database(
    records: pa.Table, more: Mapping[str, Any], tables: Mapping[str, pa.Table] | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with the table ``input``: the fields of these ``records``, and ``more`` columns. Other ``tables`` are taken over."""
    import duckdb

    with duckdb.connect(config={"threads": 1, "autoinstall_known_extensions": False, "autoload_known_extensions": False}) as connection:
        raw = pa.table({"record": records["record"], **more})  # noqa: F841  DuckDB finds it by its name
        ((structure,),) = connection.execute("SELECT CAST(json_group_structure(CAST(record AS JSON)) AS VARCHAR) FROM raw").fetchall()
        fields = (structure or "{}").replace('"UBIGINT"', '"BIGINT"').replace("'", "''")
        unnested = f"unnest(json_transform(CAST(record AS JSON), '{fields}')), " if fields != "{}" else ""
        connection.execute(f"CREATE TABLE {TABLE} AS SELECT {unnested}* EXCLUDE (record) FROM raw")
        for name, table in (tables or {}).items():
            connection.register("taken", table)
            connection.execute(f"CREATE TABLE {name} AS FROM taken")
            connection.unregister("taken")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection


def rows(connection: duckdb.DuckDBPyConnection, query: str, what: str) -> list[tuple[Any, ...]]:
    """What a query gives. Raises QueryError naming ``what`` it is."""
    import duckdb

    try:
        return connection.execute(query).fetchall()
    except duckdb.Error as error:
        columns = ", ".join(column[0] for column in connection.execute(f"SELECT * FROM {TABLE} LIMIT 0").description or [])
        raise QueryError(f"{what} cannot be evaluated: {str(error).splitlines()[0]}. The columns of {TABLE} are: {columns}") from error


def quoted(names: Sequence[str]) -> list[str]:
    """Names of columns, as SQL has them."""
    return ['"' + name.replace('"', '""') + '"' for name in names]
