"""Tables and views of one run's files, in DuckDB. Needs DuckDB alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb

_CANCELLED = b"\x18\n"  # ends a line that its writer could not finish


class Unreadable(Exception):
    """A file of the run cannot be read as evidence. The message names the file."""


def parquet(connection: duckdb.DuckDBPyConnection, name: str, place: Path, columns: str, keep: Collection[str] = ()) -> None:
    """A view over a file, or over those of a directory. Hidden ones are not evidence: their writers did not finish them."""
    inside = sorted(path for path in place.glob("*.parquet") if not path.name.startswith("."))
    paths = [str(path) for path in ([place] if place.suffix else inside)]
    quoted = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    nothing = ", ".join(f"CAST(NULL AS {kind}) AS {column}" for column, kind in (one.split() for one in columns.split(",")))
    define(connection, {name: f"SELECT * FROM read_parquet([{quoted}])" if paths else f"SELECT {nothing} WHERE false"}, keep)


def table(connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, str], rows: Iterable[list[Any]]) -> None:
    """Make a table of rows. They are handed over as one JSON text: one by one, DuckDB takes a hundred times longer."""
    chosen = ", ".join(f"CAST(row->>{number} AS {kind}) AS {column}" for number, (column, kind) in enumerate(columns.items()))
    statement = f"""CREATE OR REPLACE TABLE {name} AS SELECT {chosen} FROM (SELECT unnest(from_json(?, '["JSON"]')) AS row)"""
    connection.execute(statement, [json.dumps(list(rows))])


def define(connection: duckdb.DuckDBPyConnection, views: Mapping[str, str], keep: Collection[str] = ()) -> None:
    """Define views in their order; those to ``keep`` are computed now, as tables."""
    for name, query in views.items():
        connection.execute(f"CREATE OR REPLACE {'TABLE' if name in keep else 'VIEW'} {name} AS {query}")


def document(path: Path, *needed: str) -> dict[str, Any]:
    """The object in a JSON file. Raises Unreadable when it is none, or lacks a field."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Unreadable(f"{path} is not JSON: {error}") from error
    return _whole(path, content, needed)


def lines(path: Path, *needed: str) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines. A last line without its end is not there yet; one that was cancelled never was."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            if line.endswith(_CANCELLED):
                continue
            try:
                content = json.loads(line)
            except ValueError as error:
                raise Unreadable(f"{path}: a line is not JSON ({error})") from error
            yield _whole(path, content, needed)


def milliseconds(stamp: str) -> int:
    """A moment in ms since the epoch."""
    return round(datetime.fromisoformat(stamp).timestamp() * 1000)


def _whole(path: Path, content: Any, needed: Sequence[str]) -> dict[str, Any]:
    if not isinstance(content, dict) or not all(name in content for name in needed):
        raise Unreadable(f"{path} is damaged: expected an object with {', '.join(needed)}, found {str(content)[:80]}")
    return content
