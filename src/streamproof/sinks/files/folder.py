"""The output folder of the file sinks, read in one of two ways.

A reader that honours ``_spark_metadata`` (Spark itself does) reads the files that the sink's log names. One that lists the folder (most
other tools do) reads whatever complete files lie there, also those of attempts that failed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from streamproof.evidence import histories, identity
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.second_reading import Stretch
from streamproof.jobs.job import Job
from streamproof.sinks.delivered import Delivered
from streamproof.sinks.files import second_reader
from streamproof.sinks.sink import Row
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.timing.recovery import Stamps


class LoggedFiles:
    """Read by ``_spark_metadata``."""

    honours_log = True

    def _files(self, job: Job) -> list[Path]:
        return logged_files(job.files)

    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        shutil.rmtree(job.files, ignore_errors=True)
        job.files.mkdir(parents=True)

    def drain(self, folder: RunFolder, job: Job, testbed: Testbed, timeout_s: float) -> dict[str, Any]:
        delivered, end = Delivered(folder), self.end(job, testbed)
        files = self._files(job)
        columns: dict[str, list[Any]] = {name: [] for name in histories.DELIVERED.names}
        unreadable = [path.name for number, path in enumerate(files) if not _read(path, number, columns)]
        delivered.write(columns)
        # Spark's log names complete files only; a file that a listing reader finds half-written is not a delivery.
        reason = f"files that the log names cannot be read: {', '.join(unreadable)}" if unreadable and self.honours_log else None
        stamps = Stamps.WRITTEN if self.honours_log else Stamps.VISIBLE
        return delivered.settle(reason, {}, stamps, end, files=len(files), half_written_files=unreadable)

    def end(self, job: Job, testbed: Testbed) -> Any:
        """Each file, how long it is, and when it was written last."""
        if not job.files.is_dir():
            raise EvidenceError(f"{job.files}: the run was not prepared, or was restored already")
        there = [path for path in self._files(job) if path.exists()]
        return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in there]

    def reader(self, job: Job, testbed: Testbed) -> FilesReader:
        return FilesReader(job.files)

    def ends_again(self, job: Job, testbed: Testbed, timeout_s: float) -> dict[int, int]:
        return second_reader.ends(self._listed_again(job))

    def rows(self, job: Job, testbed: Testbed, run: str, stretches: Sequence[Stretch], timeout_s: float) -> Iterator[Row]:
        yield from second_reader.rows(self._listed_again(job), stretches)

    def _listed_again(self, job: Job) -> list[Path]:
        return self._files(job)

    def load(self) -> None:
        """All of it is there."""

    def delete(self, job: Job, testbed: Testbed) -> None:
        shutil.rmtree(job.files, ignore_errors=True)


class ListedFiles(LoggedFiles):
    """Read by listing the folder."""

    honours_log = False

    def _files(self, job: Job) -> list[Path]:
        return sorted(job.files.glob("*.parquet"))

    def _listed_again(self, job: Job) -> list[Path]:
        return second_reader.listed(job.files)


class FilesReader:
    """Reads nothing but the log: a batch appears there as a whole, with all of its files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def visible(self) -> dict[int, int]:
        names = (path.name for path in (self._folder / "_spark_metadata").glob("[0-9]*"))
        return {int(name): 1 for name in names if name.isdigit()}

    def close(self) -> None:
        return


def logged_files(folder: Path) -> list[Path]:
    """The files that ``_spark_metadata`` says were committed.

    One JSON object a line after the version, ``{"path": uri, "action": "add", ...}``; ``N.compact`` holds everything up to batch N
    (Spark 4.1, ``FileStreamSinkLog``, ``CompactibleFileStreamLog``).
    """
    logs = {int(path.name.removesuffix(".compact")): path for path in (folder / "_spark_metadata").glob("[0-9]*")}
    compact = max((number for number, path in logs.items() if path.name.endswith(".compact")), default=-1)
    paths: dict[str, None] = {}
    for number in sorted(logs):
        if number < compact:
            continue
        for line in logs[number].read_text().splitlines()[1:]:
            entry = json.loads(line)
            if entry["action"] == "add":
                paths[unquote(urlparse(entry["path"]).path)] = None
            else:
                paths.pop(unquote(urlparse(entry["path"]).path), None)
    return [Path(path) for path in paths]


def _read(path: Path, number: int, columns: dict[str, list[Any]]) -> bool:
    """Add the file's rows; False when it is not a complete Parquet file."""
    try:
        table = pq.read_table(path, columns=["key", "value"])
        written = int(path.stat().st_mtime * 1000)
    except (pa.ArrowInvalid, FileNotFoundError):
        return False
    for row, (key, value) in enumerate(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)):
        record = identity.decode(value, key)
        columns["producer"].append(record.producer if record else None)
        columns["sequence"].append(record.sequence if record else None)
        columns["crc"].append(record.crc if record and record.intact else None)
        columns["partition"].append(number)
        columns["offset"].append(row)
        columns["batch"].append(None)
        columns["attempt"].append(None)
        columns["start"].append(None)
        columns["delivered_at"].append(written)
    return True
