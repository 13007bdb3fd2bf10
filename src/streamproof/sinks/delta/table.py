"""A Delta table as output: what a reader of its newest version reads.

Drained without a JVM, by the table's own log. The second reader is ``delta-rs``, whose code shares nothing with that. A file that the log
does not name is no delivery, whatever it holds: an attempt that failed leaves such files.

``partition`` is the number of the file, in the order of their names, ``offset`` the row in it, ``delivered_at`` when the file was written
(of a compaction's file, when the oldest that it replaces was). Which version brought a file, by which operation and transaction, is
said in ``drain.json``: a batch cannot be told from it, for a version may hold files that another one wrote.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamproof import extras
from streamproof.evidence import histories, identities
from streamproof.evidence.columns import array
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.second_reading import Stretch
from streamproof.jobs.job import Job
from streamproof.sinks.delivered import Delivered
from streamproof.sinks.delta import log
from streamproof.sinks.delta.log import Version
from streamproof.sinks.files import second_reader
from streamproof.sinks.sink import Row
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.timing.recovery import Stamps

COLUMNS = ("key", "value")
COMPACTION = "OPTIMIZE"


class DeltaTable:
    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        """The job makes the table itself; a folder without a log is none."""
        extras.require("delta")
        shutil.rmtree(job.files, ignore_errors=True)
        job.files.mkdir(parents=True)

    def drain(self, folder: RunFolder, job: Job, testbed: Testbed, timeout_s: float) -> dict[str, Any]:
        delivered, history = Delivered(folder), _history(job)
        ends, places = dict[int, int](), dict[int, str]()
        for number, (name, file) in enumerate(log.active(history).items()):
            table = _read(job.files / name)
            ends[number], places[number] = len(table), file.version.told
            delivered.write(_columns(table, number, file.written_ms))
        return delivered.settle(None, ends, Stamps.WRITTEN, end(history), versions=len(history), places=places)

    def end(self, job: Job, testbed: Testbed) -> Any:
        """The newest version, and when it was committed."""
        return end(_history(job))

    def reader(self, job: Job, testbed: Testbed) -> VersionsReader:
        return VersionsReader(job.files)

    def ends_again(self, job: Job, testbed: Testbed, timeout_s: float) -> dict[int, int]:
        return second_reader.ends(list(files_again(job.files)))

    def rows(self, job: Job, testbed: Testbed, run: str, stretches: Sequence[Stretch], timeout_s: float) -> Iterator[Row]:
        yield from second_reader.rows(files_again(job.files), stretches)

    def load(self) -> None:
        """All of it is there."""

    def delete(self, job: Job, testbed: Testbed) -> None:
        shutil.rmtree(job.files, ignore_errors=True)


class VersionsReader:
    """A version becomes visible as a whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def visible(self) -> dict[int, int]:
        return {int(path.stem): 1 for path in (self._folder / log.LOG).glob("*.json") if path.stem.isdigit()}

    def close(self) -> None:
        return


def _history(job: Job) -> list[Version]:
    if not job.files.is_dir():
        raise EvidenceError(f"{job.files}: the run was not prepared, or was restored already")
    return log.versions(job.files)


def end(history: Sequence[Version]) -> list[int] | None:
    return [history[-1].number, history[-1].at_ms] if history else None


def files_again(table: Path) -> dict[Path, int]:
    """The files of the newest version as delta-rs lists them, each with when its rows were written, in ms: of a compaction's file, when the
    oldest of those was that went as it came. Raises EvidenceError."""
    import deltalake
    from deltalake.exceptions import DeltaError

    if not (table / log.LOG).is_dir():
        return {}
    written = dict[str, int]()
    try:
        versions = deltalake.DeltaTable(str(table))
        operations = {int(each["version"]): str(each["operation"]) for each in versions.history()}
        for number in sorted(operations):
            versions.load_as_version(number)
            there = {each["path"]: int(each["modification_time"]) for each in pa.table(versions.get_add_actions()).to_pylist()}
            before, written = written, {name: written.get(name, at) for name, at in there.items()}
            if operations[number] == COMPACTION:
                oldest = min(at for name, at in before.items() if name not in there)
                written |= dict.fromkeys(there.keys() - before.keys(), oldest)
    except DeltaError as error:
        raise EvidenceError(f"{table}: delta-rs cannot read the table: {error}") from error
    return {table / name: at for name, at in sorted(written.items())}


def _read(path: Path) -> pa.Table:
    try:
        return pq.read_table(path, columns=list(COLUMNS), partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise EvidenceError(f"{path}: the table's log names this file, and it cannot be read: {error}") from error


def _columns(table: pa.Table, number: int, written_ms: int) -> dict[str, Any]:
    rows = len(table)
    data, at, size = _bytes(table, COLUMNS)
    decoded = identities.decode(data, at["value"], size["value"], at["key"], size["key"])
    nothing = np.ones(rows, bool)
    return {
        "producer": array(decoded.producer, ~decoded.present),
        "sequence": array(decoded.sequence, ~decoded.present),
        "crc": array(decoded.crc, ~decoded.intact),
        "partition": array(np.full(rows, number, np.int32)),
        "offset": array(np.arange(rows)),
        "batch": array(np.full(rows, -1), nothing),
        "attempt": array(np.full(rows, -1, np.int32), nothing),
        "start": array(np.full(rows, -1, np.int32), nothing),
        "delivered_at": array(np.full(rows, written_ms)).cast(histories.DELIVERED.field("delivered_at").type),
    }


def _bytes(table: pa.Table, names: Sequence[str]) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The bytes of these columns behind each other, and of each where each value begins and how long it is; -1 for a null."""
    pieces, at, size, before = list[np.ndarray](), dict[str, np.ndarray](), dict[str, np.ndarray](), 0
    for name in names:
        column = table[name].cast(pa.large_binary()).combine_chunks()
        chunk = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        _, offsets, data = chunk.buffers()
        begins = np.frombuffer(offsets, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
        content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        at[name] = begins[:-1] + before
        size[name] = np.where(chunk.is_valid().to_numpy(zero_copy_only=False), np.diff(begins), -1)
        pieces.append(content)
        before += len(content)
    return np.concatenate(pieces), at, size
