"""How often each record of a workload is due, by what an experiment expects: a condition, a number, or a table of the user's own.

DuckDB evaluates the experiment's SQL over the fields of the records, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamproof import settings
from streamproof.evidence import inputs
from streamproof.evidence.inputs import QueryError, quoted
from streamproof.jobs.expected import CountTable, ExpectedCounts
from streamproof.load import files
from streamproof.shown import shown

if TYPE_CHECKING:
    import duckdb

MOST = 1000
"""The most deliveries of one record."""
_READERS = {".parquet": "read_parquet", ".csv": "read_csv", ".jsonl": "read_json", ".ndjson": "read_json"}


class NotCountable(ValueError):
    """What is expected cannot be computed of these records. The message names what is wrong with it."""


def counts(expected: ExpectedCounts, events: Iterable[files.Event]) -> np.ndarray:
    """How often each record is due, in their order. Raises NotCountable when the experiment's SQL or table does not fit the records, and
    when none of them is due at all."""
    try:
        records = pa.table({"record": files.objects(events)})
    except files.NotReadable as error:
        raise NotCountable(str(error)) from error
    tables = {} if expected.table is None else {"due": _read(expected.table)}
    with inputs.database(records, {"_sequence": range(len(records))}, tables) as connection:
        found = np.ones(len(records), np.int64)
        try:
            if expected.table is not None:
                found *= _of_table(connection, expected.table)
            if expected.explode is not None:
                found *= _whole(_evaluated(connection, "explode", str(expected.explode)), "explode")
            if expected.filter is not None:
                found *= _kept(connection, expected.filter)
        except QueryError as error:
            raise NotCountable(str(error)) from error
    if not found.any():
        raise NotCountable("none of the records is to be delivered at all, so nothing could be lost: is it what you meant?")
    return found


def _kept(connection: duckdb.DuckDBPyConnection, condition: str) -> np.ndarray:
    kept = _evaluated(connection, "filter", condition)
    if strange := [one for one in kept if one is not None and not isinstance(one, bool)]:
        raise NotCountable(f"filter: expected a condition, {condition} is {shown(strange[0])}")
    return np.array([one is True for one in kept], np.int64)


def _evaluated(connection: duckdb.DuckDBPyConnection, name: str, expression: str) -> list[Any]:
    query = f"SELECT ({expression}) FROM {inputs.TABLE} ORDER BY _sequence"
    return [row[0] for row in inputs.rows(connection, query, f"{name}: {expression}")]


def _whole(found: list[Any], name: str) -> np.ndarray:
    """These as numbers of deliveries."""
    for number, one in enumerate(found, 1):
        if isinstance(one, bool) or not isinstance(one, int) or not 0 <= one <= MOST:
            raise NotCountable(f"{name}: expected a whole number from 0 to {MOST}, came {shown(one)} for record {number}")
    return np.array(found, np.int64)


def _read(table: CountTable) -> pa.Table:
    """The user's table, with the columns ``found`` and ``count``."""
    import duckdb

    path = settings.project() / table.path
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise NotCountable(f"table: {table.path}: expected a file whose name ends with one of {', '.join(_READERS)}")
    (key,), count = quoted([table.key]), "1" if table.count is None else quoted([table.count])[0]
    query = f"SELECT CAST({key} AS VARCHAR) AS found, {count} AS count FROM {reader}(?)"
    try:
        with duckdb.connect(config={"autoinstall_known_extensions": False}) as connection:
            return connection.sql(query, params=[str(path)]).to_arrow_table()
    except duckdb.Error as error:
        raise NotCountable(f"table: {table.path} cannot be used: {str(error).splitlines()[0]}") from error


def _of_table(connection: duckdb.DuckDBPyConnection, table: CountTable) -> np.ndarray:
    again = connection.execute("SELECT found FROM due GROUP BY found HAVING count(*) > 1 ORDER BY found LIMIT 1").fetchone()
    if again is not None:
        raise NotCountable(f"table: {table.path}: {table.key} {shown(again[0])} is there more than once; each record has one row")
    key = f"CAST({quoted([table.key])[0]} AS VARCHAR)"
    query = f"SELECT if(due.found IS NULL, 0, due.count) FROM {inputs.TABLE} LEFT JOIN due ON {key} = due.found ORDER BY _sequence"
    return _whole([row[0] for row in inputs.rows(connection, query, f"table: {table.path}")], f"table: {table.path}")
