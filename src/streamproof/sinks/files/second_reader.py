"""A second reader of output files: DuckDB lists a folder, and reads Parquet with code of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb

from streamproof.sinks.sink import Row

FETCH = 10_000


def listed(folder: Path) -> list[Path]:
    """The Parquet files of a folder, in the order of their names."""
    with duckdb.connect() as connection:
        found = connection.execute("SELECT file FROM glob(?) ORDER BY file", [f"{folder}/*.parquet"]).fetchall()
    return sorted(Path(file) for (file,) in found)


def rows(files: Iterable[Path]) -> Iterator[Row]:
    """The rows of these files, as ``payloads/`` has them. A file that is not whole is no delivery; it keeps its number."""
    with duckdb.connect() as connection:
        for number, path in enumerate(files):
            query = "SELECT file_row_number, key, value FROM read_parquet(?, file_row_number = true) ORDER BY file_row_number"
            try:
                result = connection.execute(query, [str(path)])
                written = int(path.stat().st_mtime * 1000)
            except (duckdb.Error, FileNotFoundError):
                continue
            while some := result.fetchmany(FETCH):
                yield from ((number, offset, None, None, None, written, key, value) for offset, key, value in some)
