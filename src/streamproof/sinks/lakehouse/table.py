"""A table whose metadata name its files: what a reader of its newest version reads.

Drained without a JVM. A file that the metadata do not name is no delivery, whatever it holds: an attempt that failed leaves such files.

``partition`` is the number of the file, in the order of their names, ``offset`` the row in it, ``delivered_at`` when the file was written
(of a compaction's file, when the oldest that it replaces was). Which version brought a file, by which operation and transaction, is
said in ``drain.json``: a batch cannot be told from it, for a version may hold files that another one wrote. What the older versions showed
goes into ``versions/``.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamproof import extras
from streamproof.evidence import histories, identities
from streamproof.evidence.columns import array
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.second_reading import Stretch
from streamproof.evidence.versions import Identities
from streamproof.jobs.job import Job
from streamproof.sinks.delivered import Delivered
from streamproof.sinks.files import second_reader
from streamproof.sinks.lakehouse import history
from streamproof.sinks.lakehouse.history import Files, History
from streamproof.sinks.sink import Reader, Row
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.timing.recovery import Stamps

COLUMNS = ("key", "value")


@dataclass(frozen=True)
class File:
    """A file of a table. ``written_ms`` is when its rows were written, in ms since the epoch: of a compaction's file, when the oldest of
    those was that it replaces, for its rows were there before. ``told`` is the version that brought it, in words."""

    path: Path
    written_ms: int
    told: str


@dataclass(frozen=True)
class Contents:
    """What a reader of the newest version finds. ``end`` is that version as JSON has it, None where there is no table yet; ``versions`` is
    how many are known."""

    files: Sequence[File]
    end: Any
    versions: int


class LakeTable(ABC):
    """One of our strategies' output: the columns ``key`` and ``value``."""

    extra: ClassVar[str]
    stamps: ClassVar[Stamps] = Stamps.WRITTEN

    @abstractmethod
    def contents(self, job: Job, testbed: Testbed) -> Contents:
        """As the table's metadata have it. Raises EvidenceError when they are damaged."""

    @abstractmethod
    def history(self, job: Job, testbed: Testbed) -> History:
        """Every version, as the table's metadata have it. Raises EvidenceError when they are damaged."""

    @abstractmethod
    def history_again(self, job: Job, testbed: Testbed) -> Sequence[Files | None]:
        """The files of every version as another reader finds them; None for one that it cannot read. Raises EvidenceError."""

    @abstractmethod
    def files_again(self, job: Job, testbed: Testbed) -> Mapping[Path, int]:
        """The files of the newest version as another reader finds them, each with when its rows were written, in ms since the epoch. Raises
        EvidenceError."""

    @abstractmethod
    def reader(self, job: Job, testbed: Testbed) -> Reader: ...

    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        """The job makes the table itself; a folder without metadata is none."""
        extras.require(self.extra)
        shutil.rmtree(job.files, ignore_errors=True)
        job.files.mkdir(parents=True)

    def drain(self, folder: RunFolder, job: Job, testbed: Testbed, timeout_s: float) -> dict[str, Any]:
        delivered, found = Delivered(folder), self._contents(job, testbed)
        history.write(folder, job.files, self.history(job, testbed), self.history_again(job, testbed), shown)
        ends, places = dict[int, int](), dict[int, str]()
        for number, file in enumerate(found.files):
            table = read(file.path)
            ends[number], places[number] = len(table), file.told
            delivered.write(_columns(table, number, file.written_ms))
        return delivered.settle(None, ends, self.stamps, found.end, versions=found.versions, places=places)

    def end(self, job: Job, testbed: Testbed) -> Any:
        """The newest version, and when it was committed."""
        return self._contents(job, testbed).end

    def ends_again(self, job: Job, testbed: Testbed, timeout_s: float) -> dict[int, int]:
        return second_reader.ends(list(self.files_again(job, testbed)))

    def rows(self, job: Job, testbed: Testbed, run: str, stretches: Sequence[Stretch], timeout_s: float) -> Iterator[Row]:
        yield from second_reader.rows(self.files_again(job, testbed), stretches)

    def load(self) -> None:
        """All of it is there."""
        return

    def delete(self, job: Job, testbed: Testbed) -> None:
        shutil.rmtree(job.files, ignore_errors=True)
        shutil.rmtree(job.run.kept, ignore_errors=True)

    def _contents(self, job: Job, testbed: Testbed) -> Contents:
        if not job.files.is_dir():
            raise EvidenceError(f"{job.files}: the run was not prepared, or was restored already")
        return self.contents(job, testbed)


def read(path: Path) -> pa.Table:
    """Raises EvidenceError."""
    try:
        return pq.read_table(path, columns=list(COLUMNS), partitioning=None)
    except (pa.ArrowException, OSError) as error:
        raise EvidenceError(f"{path}: the table's metadata name this file, and it cannot be read: {error}") from error


def shown(path: Path) -> Identities | None:
    """The identity of each row of a file of some version; None where the file is not there any more. Raises EvidenceError."""
    if not path.exists():
        return None
    decoded = _decoded(read(path))
    return array(decoded.producer, ~decoded.present), array(decoded.sequence, ~decoded.present)


def _decoded(table: pa.Table) -> identities.Identities:
    data, at, size = _bytes(table, COLUMNS)
    return identities.decode(data, at["value"], size["value"], at["key"], size["key"])


def _columns(table: pa.Table, number: int, written_ms: int) -> dict[str, Any]:
    rows, decoded = len(table), _decoded(table)
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
