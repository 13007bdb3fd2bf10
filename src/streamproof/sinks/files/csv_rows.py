"""Files of CSV as RFC 4180 describes them, with a first line that names the columns: read by the drain, and by the second reader.

A file without a whole first line is no delivery. A last line that has not ended was cut somewhere: its last field is not read.
``escape`` is what stands before a quote inside quotes: the quote itself, or a backslash (Spark's own).
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from streamproof.evidence import locations
from streamproof.evidence.folder import EvidenceError
from streamproof.evidence.locations import Found, Location
from streamproof.evidence.second_reading import Stretch

FETCH = 10_000
MOST_COLUMNS = 1024
MARK = "ï»¿"  # a byte order mark, read as Latin-1: any byte is a character there, and the identity is ASCII
NOBODYS_TEXT = "\x01\x02"


def _ended(path: Path) -> bool:
    """Whether the file ends with the end of a line."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 1), os.SEEK_SET)
        return file.read(1) in (b"\n", b"\r")


# --- the drain --------------------------------------------------------------------------------------------------------------------


def identities(path: Path, location: Location, escape: str) -> list[Found] | None:
    """The identity of each row; None for a file that is not whole. Raises EvidenceError naming the column that the file lacks."""
    csv.field_size_limit(sys.maxsize)
    quoting: dict[str, Any] = {"doublequote": True} if escape == '"' else {"doublequote": False, "escapechar": escape}
    with path.open(encoding="latin-1", newline="") as file:
        rows = [row for row in csv.reader(file, **quoting) if row]
    ended = _ended(path)
    if not rows or (len(rows) == 1 and not ended):
        return None
    names, *rows = rows
    columns = _columns(path, [name.removeprefix(MARK) for name in names], location)
    if not ended:
        rows[-1] = rows[-1][: len(names)][:-1]
    return [locations.of_columns(tuple(row[at] if at < len(row) else None for at in columns)) for row in rows]


def _columns(path: Path, names: Sequence[str], location: Location) -> list[int]:
    if missing := [name for name in location.names if name not in names]:
        raise EvidenceError(
            f"{path} has no column {missing[0]} for the identity; its first line must name the columns, it is: {', '.join(names)}"
        )
    return [names.index(name) for name in location.names]


# --- the second reader ------------------------------------------------------------------------------------------------------------


def count(path: Path, escape: str) -> int | None:
    """How many rows a file has; None for a file that is not whole."""
    names = _names(path, escape)
    return None if names is None else sum(1 for _ in _rows(path, escape, len(names)))


def values(path: Path, escape: str, stretch: Stretch) -> Iterator[tuple[int, bytes]]:
    """The rows of a stretch as JSON. Of two columns with one name the first counts."""
    names = _names(path, escape) or []
    for offset, row in enumerate(_rows(path, escape, len(names))):
        if stretch.since <= offset < stretch.until:
            pairs = [(name, None if value is None else _text(value)) for name, value in zip(names, row, strict=True)]
            yield offset, json.dumps(dict(reversed(pairs)), ensure_ascii=False).encode()


def _names(path: Path, escape: str) -> list[str] | None:
    with duckdb.connect() as connection:
        first = connection.execute(_query(MOST_COLUMNS, escape, header=False), [str(path)]).fetchmany(2)
    if not first or (len(first) == 1 and not _ended(path)):
        return None
    return [_text(name.removeprefix(MARK)) for name in first[0] if name is not None]


def _rows(path: Path, escape: str, columns: int) -> Iterator[tuple[str | None, ...]]:
    ended, before = _ended(path), None
    with duckdb.connect() as connection:
        result = connection.execute(_query(columns, escape, header=True), [str(path)])
        while some := result.fetchmany(FETCH):
            for row in some:
                if before is not None:
                    yield before
                before = row
    if before is not None:
        there = sum(value is not None for value in before)
        yield before if ended else before[: there - 1] + (None,) * (columns - there + 1)


def _query(columns: int, escape: str, header: bool) -> str:
    """Every field as the text that it is; rows that are too short are filled up, what a row has too much is left out."""
    types = ", ".join(f"'c{number}': 'VARCHAR'" for number in range(columns))
    return f"""
        FROM read_csv(?, auto_detect = false, header = {header}, columns = {{{types}}}, delim = ',', quote = '"', escape = '{escape}',
                      encoding = 'latin-1', nullstr = '{NOBODYS_TEXT}', null_padding = true, strict_mode = false, parallel = false)"""


def _text(read: str) -> str:
    """What was read byte by byte, as the text that it is."""
    return read.encode("latin-1").decode(errors="replace")
