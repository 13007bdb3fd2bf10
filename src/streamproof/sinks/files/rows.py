"""A folder of the user's own files, with whatever columns they have: Parquet, JSON with an object in each line, or CSV (``csv_rows``).

It is read as most tools read it, by listing it: whatever files lie there and below, but what begins with ``_`` or a dot. With ``spark_log``
it is read as Spark reads what its own streaming sink wrote: the files that ``_spark_metadata`` names. A Parquet file that is not whole is
no delivery; a line of JSON that is not whole is a record without an identity.

The drain reads the identity's columns. The second reader gives whole rows, as JSON of which the suites find the identity.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from streamproof.evidence import locations
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.locations import Found, Location
from streamproof.evidence.second_reading import Stretch
from streamproof.jobs.job import Job
from streamproof.sinks.delivered import Delivered
from streamproof.sinks.files import csv_rows
from streamproof.sinks.files.folder import FilesReader, logged_files
from streamproof.sinks.sink import Reader, Row
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.timing.recovery import Stamps

FETCH = 10_000


class FileRows:
    def files(self, job: Job, testbed: Testbed) -> list[Path]:
        """The files of the output. Raises EvidenceError when there is no such folder, or none of its files has the format."""
        return _files(job)

    def files_again(self, job: Job, testbed: Testbed) -> list[Path]:
        """The same, as the second reader finds them."""
        return self.files(job, testbed)

    def logged(self, job: Job) -> bool:
        """Whether a log names the files, so that one which cannot be read is missing."""
        return bool(job.output["spark_log"])

    def places(self, job: Job, testbed: Testbed) -> dict[int, str]:
        """What is known of who wrote which file, by its number."""
        return {}

    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        shutil.rmtree(job.files, ignore_errors=True)
        job.files.mkdir(parents=True)

    def drain(self, folder: RunFolder, job: Job, testbed: Testbed, timeout_s: float) -> dict[str, Any]:
        delivered, end, files = Delivered(folder), self.end(job, testbed), self.files(job, testbed)
        unreadable, ends = [], {}
        for number, path in enumerate(files):
            found = identities(path, job)
            if found is None:
                unreadable.append(path.name)
                continue
            ends[number] = len(found)
            delivered.write(_columns(found, number, path))
        named = unreadable and self.logged(job)
        reason = f"files that the log names cannot be read: {', '.join(unreadable)}" if named else None
        more = {"files": len(files), "half_written_files": unreadable, "places": self.places(job, testbed)}
        return delivered.settle(reason, ends, Stamps.VISIBLE, end, **more)

    def end(self, job: Job, testbed: Testbed) -> Any:
        """Each file, how long it is, and when it was written last."""
        if not job.files.is_dir():
            raise EvidenceError(f"{job.files}: the run was not prepared, or was restored already")
        folder = job.output_folder
        there = [path for path in self.files(job, testbed) if path.exists()]
        return [[str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns] for path in there]

    def reader(self, job: Job, testbed: Testbed) -> Reader:
        return FilesReader(job.output_folder)

    def follower(self, job: Job, testbed: Testbed) -> FilesFollower:
        return FilesFollower(job, lambda: self.files(job, testbed))

    def ends_again(self, job: Job, testbed: Testbed, timeout_s: float) -> dict[int, int]:
        counted = {number: _count(path, job) for number, path in enumerate(self.files_again(job, testbed))}
        return {number: count for number, count in counted.items() if count is not None}

    def rows(self, job: Job, testbed: Testbed, run: str, stretches: Sequence[Stretch], timeout_s: float) -> Iterator[Row]:
        files = self.files_again(job, testbed)
        for stretch in stretches:
            path = files[stretch.partition]
            written = int(path.stat().st_mtime * 1000)
            for offset, value in _values(path, job, stretch):
                yield stretch.partition, offset, None, None, None, written, None, value

    def load(self) -> None:
        """All of it is there."""

    def delete(self, job: Job, testbed: Testbed) -> None:
        shutil.rmtree(job.files, ignore_errors=True)


class FilesFollower:
    """Reads each file again that has changed."""

    def __init__(self, job: Job, files: Callable[[], list[Path]]) -> None:
        self._job, self._files = job, files
        self._read: dict[Path, tuple[int, int]] = {}

    def identities(self) -> Iterator[Found]:
        for path in self._files():
            try:
                now = path.stat()
            except FileNotFoundError:  # the job has renamed or removed it since
                continue
            if self._read.get(path) != (state := (now.st_size, now.st_mtime_ns)):
                self._read[path] = state
                yield from identities(path, self._job) or ()

    def close(self) -> None:
        """Nothing is open."""


def _files(job: Job) -> list[Path]:
    """The files of the output. Raises EvidenceError when there is no such folder, or none of its files has the format."""
    folder, ending = job.output_folder, str(job.output["format"])
    if job.output["spark_log"]:
        return logged_files(folder)
    if not folder.is_dir():
        there = ", ".join(sorted(path.name for path in job.files.iterdir())) or "nothing"
        raise EvidenceError(f"the job wrote no folder {folder}; in {job.files} there is: {there}")
    visible = [path for path in folder.rglob("*") if path.is_file() and not _hidden(path.relative_to(folder))]
    found = sorted(path for path in visible if path.suffix == f".{ending}")
    if visible and not found:
        raise EvidenceError(f"{folder} holds no file whose name ends with .{ending}; it holds {visible[0].name}")
    return found


def _hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


# --- the drain --------------------------------------------------------------------------------------------------------------------


def identities(path: Path, job: Job) -> list[Found] | None:
    """The identity of each row; None for a file that is not whole."""
    location = job.location_delivered
    if job.output["format"] == "json":
        lines = path.read_bytes().split(b"\n")
        return [locations.decode(location, None, line, None) for line in (lines if lines[-1] else lines[:-1])]
    if job.output["format"] == "csv":
        return csv_rows.identities(path, location, job.output["escape"])
    return _of_parquet(path, location)


def _of_parquet(path: Path, location: Location) -> list[Found] | None:
    """Raises EvidenceError naming the column that the file lacks."""
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if missing := [name for name in location.names if name not in names]:
                raise EvidenceError(f"{path} has no column {missing[0]} for the identity; it has: {', '.join(names)}")
            table = file.read(columns=list(location.names))
    except (pa.ArrowInvalid, FileNotFoundError):
        return None
    return [locations.of_columns(row) for row in zip(*(table[name].to_pylist() for name in location.names), strict=True)]


def _columns(found: Sequence[Found], number: int, path: Path) -> dict[str, Any]:
    """These rows as columns of ``delivered/``. What a row says beside its identity is not judged: its checksum is 0, as in ``sent/``."""
    nothing, written = [None] * len(found), int(path.stat().st_mtime * 1000)
    return {
        "producer": [one and one[0] for one in found],
        "sequence": [one and one[1] for one in found],
        "crc": [0 if one else None for one in found],
        "partition": [number] * len(found),
        "offset": list(range(len(found))),
        "batch": nothing,
        "attempt": nothing,
        "start": nothing,
        "delivered_at": [written] * len(found),
    }


# --- the second reader ------------------------------------------------------------------------------------------------------------


def _count(path: Path, job: Job) -> int | None:
    """How many rows a file has; None for a file that is not whole."""
    if job.output["format"] == "json":
        with path.open("rb") as file:
            return sum(1 for _ in file)
    if job.output["format"] == "csv":
        return csv_rows.count(path, job.output["escape"])
    with duckdb.connect() as connection:
        try:
            ((rows,),) = connection.execute("SELECT sum(num_rows)::BIGINT FROM parquet_file_metadata(?)", [str(path)]).fetchall()
        except duckdb.Error:
            return None
        return int(rows or 0)


def _values(path: Path, job: Job, stretch: Stretch) -> Iterator[tuple[int, bytes]]:
    """The rows of a stretch as JSON."""
    if job.output["format"] == "csv":
        yield from csv_rows.values(path, job.output["escape"], stretch)
        return
    if job.output["format"] == "json":
        with path.open("rb") as file:
            for offset, line in enumerate(file):
                if stretch.since <= offset < stretch.until:
                    yield offset, line.rstrip(b"\n")
        return
    with duckdb.connect() as connection:
        types = connection.execute("SELECT column_name, column_type FROM (DESCRIBE FROM read_parquet(?))", [str(path)]).fetchall()
        query = f"""
            SELECT file_row_number, row_to_json(own)::VARCHAR FROM (
                SELECT file_row_number, {{{", ".join(f"{_quoted(name, chr(39))}: {_plain(name, kind)}" for name, kind in types)}}} AS own
                FROM read_parquet(?, file_row_number = true)
            ) WHERE file_row_number >= ? AND file_row_number < ? ORDER BY file_row_number"""
        result = connection.execute(query, [str(path), stretch.since, stretch.until])
        while some := result.fetchmany(FETCH):
            for offset, row in some:
                yield offset, row.encode()


def _plain(name: str, kind: str) -> str:
    """A column as JSON can hold it: NaN and infinite numbers are none, and what has parts is text."""
    column = _quoted(name, '"')
    if kind in ("DOUBLE", "FLOAT"):
        return f"CASE WHEN isfinite({column}) THEN {column} END"
    return f"{column}::VARCHAR" if "(" in kind or "[" in kind else column


def _quoted(name: str, quote: str) -> str:
    return f"{quote}{name.replace(quote, quote * 2)}{quote}"
