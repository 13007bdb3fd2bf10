"""A second reader of output files: DuckDB lists a folder, and reads Parquet with code of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb

from streamproof.evidence.second_reading import Stretch
from streamproof.sinks.sink import Row

FETCH = 10_000


def listed(folder: Path) -> list[Path]:
    """The Parquet files of a folder, in the order of their names."""
    with duckdb.connect() as connection:
        found = connection.execute("SELECT file FROM glob(?) ORDER BY file", [f"{folder}/*.parquet"]).fetchall()
    return sorted(Path(file) for (file,) in found)


def ends(files: Sequence[Path]) -> dict[int, int]:
    """How many rows each of these files has; one that is not whole has none, and keeps its number."""
    query = "SELECT coalesce(sum(num_rows), 0)::BIGINT FROM parquet_file_metadata(?)"
    counts = {}
    with duckdb.connect() as connection:
        for number, path in enumerate(files):
            try:
                ((counts[number],),) = connection.execute(query, [str(path)]).fetchall()
            except (duckdb.Error, FileNotFoundError):
                counts[number] = 0
    return counts


def rows(files: Sequence[Path] | Mapping[Path, int], stretches: Sequence[Stretch]) -> Iterator[Row]:
    """The rows of these stretches, as ``payloads/`` has them. A file that is not whole is no delivery; it keeps its number. ``files`` may
    say when each was written, in ms since the epoch; else the file system does."""
    numbered, said = list(files), files if isinstance(files, Mapping) else {}
    query = """
        SELECT file_row_number, key, value FROM read_parquet(?, file_row_number = true)
        WHERE file_row_number >= ? AND file_row_number < ? ORDER BY file_row_number"""
    with duckdb.connect() as connection:
        for stretch in stretches:
            path = numbered[stretch.partition]
            try:
                result = connection.execute(query, [str(path), stretch.since, stretch.until])
                written = said.get(path) or int(path.stat().st_mtime * 1000)
            except (duckdb.Error, FileNotFoundError):
                continue
            while some := result.fetchmany(FETCH):
                yield from ((stretch.partition, offset, None, None, None, written, key, value) for offset, key, value in some)
