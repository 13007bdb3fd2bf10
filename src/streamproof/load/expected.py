"""How often each record of a workload is due, by what an experiment expects: a condition, a number, or a table of the user's own.

DuckDB evaluates the experiment's SQL over the fields of the records, before anything is sent.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamproof import settings
from streamproof.jobs.expected import CountTable, ExpectedCounts
from streamproof.load import files
from streamproof.shown import shown

if TYPE_CHECKING:
    import duckdb

MOST = 1000
"""The most deliveries of one record."""
_INPUT = "SELECT record.* FROM sent"
_RECORDS = """
    CREATE TABLE sent AS SELECT number, record FROM read_json(?, format = 'newline_delimited', sample_size = -1, maximum_depth = 8,
    maximum_object_size = 67108864, map_inference_threshold = -1)"""
_READERS = {".parquet": "read_parquet", ".csv": "read_csv", ".jsonl": "read_json", ".ndjson": "read_json"}
_BY_TABLE = """
    SELECT coalesce(due.count, 0) FROM sent LEFT JOIN due ON CAST(sent.record.{on} AS VARCHAR) = due.found ORDER BY number"""


class NotCountable(ValueError):
    """What is expected cannot be computed of these records. The message names what is wrong with it."""


def counts(expected: ExpectedCounts, events: Iterable[files.Event]) -> np.ndarray:
    """How often each record is due, in their order. Raises NotCountable when the experiment's SQL or table does not fit the records, and
    when none of them is due at all."""
    import duckdb

    with tempfile.TemporaryDirectory(prefix="streamproof-") as scratch:
        lines = Path(scratch) / "sent.ndjson"
        with lines.open("wb") as file:
            file.writelines(b'{"number":%d,"record":%b}\n' % (number, payload) for number, (_, payload) in enumerate(events))
        with duckdb.connect(config={"temp_directory": scratch, "autoinstall_known_extensions": False}) as connection:
            connection.execute(_RECORDS, [str(lines)])
            ((records,),) = connection.execute("SELECT count(*) FROM sent").fetchall()
            found: np.ndarray = np.ones(records, np.int64) if expected.table is None else _of_table(connection, expected.table)
            found *= _of_sql(connection, expected, records)
    if not found.any():
        raise NotCountable("none of the records is to be delivered at all, so nothing could be lost: is it what you meant?")
    return found


def _of_sql(connection: duckdb.DuckDBPyConnection, expected: ExpectedCounts, records: int) -> np.ndarray:
    connection.execute("SET enable_external_access = false")
    due = np.ones(records, np.int64)
    if expected.explode is not None:
        due = _whole(_evaluated(connection, "explode", str(expected.explode)), "explode")
    if expected.filter is not None:
        kept = _evaluated(connection, "filter", expected.filter)
        if strange := [one for one in kept if one is not None and not isinstance(one, bool)]:
            raise NotCountable(f"filter: expected a condition, {expected.filter} is {shown(strange[0])}")
        due = np.where([one is True for one in kept], due, 0)
    return due


def _evaluated(connection: duckdb.DuckDBPyConnection, name: str, expression: str) -> list[Any]:
    import duckdb

    try:
        rows = connection.execute(f"SELECT ({expression}) FROM (SELECT number, record.* FROM sent) ORDER BY number").fetchall()
    except duckdb.Error as error:
        fields = ", ".join(column[0] for column in connection.execute(f"{_INPUT} LIMIT 0").description or [])
        raise NotCountable(f"{name}: {expression} cannot be evaluated: {str(error).splitlines()[0]}. A record has: {fields}") from error
    return [row[0] for row in rows]


def _whole(found: list[Any], name: str) -> np.ndarray:
    """These as numbers of deliveries."""
    for number, one in enumerate(found, 1):
        if isinstance(one, bool) or not isinstance(one, int) or not 0 <= one <= MOST:
            raise NotCountable(f"{name}: expected a whole number from 0 to {MOST}, came {shown(one)} for record {number}")
    return np.array(found, np.int64)


def _of_table(connection: duckdb.DuckDBPyConnection, table: CountTable) -> np.ndarray:
    import duckdb

    path = settings.project() / table.path
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise NotCountable(f"table: {table.path}: expected a file whose name ends with one of {', '.join(_READERS)}")
    on, count = _quoted(table.key), "1" if table.count is None else _quoted(table.count)
    try:
        connection.execute(f"CREATE TABLE due AS SELECT CAST({on} AS VARCHAR) AS found, {count} AS count FROM {reader}(?)", [str(path)])
        twice = connection.execute("SELECT found FROM due GROUP BY found HAVING count(*) > 1 ORDER BY found LIMIT 1").fetchone()
        found = [row[0] for row in connection.execute(_BY_TABLE.replace("{on}", on)).fetchall()] if twice is None else []
    except duckdb.Error as error:
        raise NotCountable(f"table: {table.path} cannot be used: {str(error).splitlines()[0]}") from error
    if twice is not None:
        raise NotCountable(f"table: {table.path}: {table.key} {shown(twice[0])} is there more than once; each record has one row")
    return _whole(found, f"table: {table.path}: {table.count or table.key}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
