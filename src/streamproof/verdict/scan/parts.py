"""The histories, one part at a time: row groups of their Parquet files, and an index for every identity that can have been sent.

Consecutive identities of one producer have consecutive indices, so an array can hold one fact for each record. The intents and the
Parquet statistics of the row groups say which identities there are. The same statistics say which row groups need not be read for a range
of indices.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamproof.evidence.folder import EvidenceError
from streamproof.evidence.histories import files

CHUNK = 1 << 17  # rows that are looked at side by side
Intent = tuple[int, int, int]
"""Producer, first sequence, count."""
_MAX_PRODUCER = 0xFFFF


@dataclass(frozen=True)
class Group:
    """A group of rows in a file. ``producers`` and ``sequences`` are the least and the greatest in it, None where Parquet does not say;
    ``named`` is False where a row may lack one of them."""

    file: int
    number: int
    rows: int
    producers: tuple[int, int] | None
    sequences: tuple[int, int] | None
    named: bool

    @property
    def producer(self) -> int | None:
        """The producer of all rows, if it is known to be one."""
        return self.producers[0] if self.named and self.producers is not None and self.producers[0] == self.producers[1] else None


class Parts:
    """The files of ``sent/`` or ``delivered/``. Raises EvidenceError when one cannot be read as ``schema`` wants it."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self.schema, self._paths = schema, files(directory)
        self._metadata: list[pq.FileMetaData] = []
        self._opened = threading.local()
        self.groups: list[Group] = []
        for number, path in enumerate(self._paths):
            with _evidence(path):
                metadata = pq.read_metadata(path)
                self._metadata.append(metadata)
                self.groups += _groups(number, metadata)

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)

    def read(self, group: Group, columns: Sequence[str]) -> pa.Table:
        """These columns of a group of rows, those of strings as dictionaries."""
        path = self._paths[group.file]
        with _evidence(path):
            table = self._file(group.file).read_row_group(group.number, columns=list(columns), use_threads=False).select(list(columns))
            wanted = pa.schema([self.schema.field(name) for name in columns])
            if table.schema.equals(wanted):
                return table
            return pa.table({name: _cast(table[name], wanted.field(name).type) for name in columns})

    def chunks(self, group: Group, columns: Sequence[str]) -> Iterator[pa.Table]:
        table = self.read(group, columns)
        for begin in range(0, len(table), CHUNK):
            yield table.slice(begin, CHUNK)

    def _file(self, number: int) -> pq.ParquetFile:
        opened = self._opened.__dict__.setdefault("files", {})
        if number not in opened:
            for old in opened.values():
                old.close()
            opened.clear()
            dictionaries = [name for name in self.schema.names if pa.types.is_string(self.schema.field(name).type)]
            opened[number] = pq.ParquetFile(self._paths[number], metadata=self._metadata[number], read_dictionary=dictionaries)
        return opened[number]


class _evidence:  # noqa: N801
    """What goes wrong in reading a file names it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError | pa.ArrowException | KeyError):
            raise EvidenceError(f"{self._path} cannot be read as evidence: {error}") from error


def _cast(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type) and column.type.value_type.equals(wanted):
        return column
    return column.cast(wanted)


def _groups(file: int, metadata: pq.FileMetaData) -> Iterator[Group]:
    places = {metadata.schema.column(number).name: number for number in range(metadata.num_columns)}
    if missing := {"producer", "sequence"} - set(places):
        raise KeyError(f"no column {sorted(missing)[0]}")
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        statistics = [group.column(places[name]).statistics for name in ("producer", "sequence")]
        producers, sequences = ((one.min, one.max) if one is not None and one.has_min_max else None for one in statistics)
        named = all(one is not None and one.has_null_count and one.null_count == 0 for one in statistics)
        yield Group(file, number, group.num_rows, producers, sequences, named)


class IdentityIndex:
    """An index for each identity from the least to the greatest sequence of each producer that sent, or meant to."""

    def __init__(self, sent: Iterable[Group], intents: Iterable[Intent]) -> None:
        extents: dict[int, tuple[int, int]] = {}

        def widen(producer: int, low: int, high: int) -> None:
            least, most = extents.get(producer, (low, high))
            extents[producer] = min(least, low), max(most, high)

        for group in sent:
            assert group.producers is not None
            assert group.sequences is not None
            for producer in range(group.producers[0], min(group.producers[1], _MAX_PRODUCER) + 1):
                widen(producer, *group.sequences)
        for producer, first, count in intents:
            if count > 0:
                widen(producer, first, first + count - 1)
        self._extents: dict[int, tuple[int, int, int]] = {}
        self.count = 0
        for producer, (low, high) in sorted(extents.items()):
            self._extents[producer] = low, high, self.count - low
            self.count += high - low + 1
        width = max(extents, default=0) + 1
        self._low, self._high, self._shift = (np.zeros(width, np.int64) for _ in range(3))
        self._high[:] = -1
        for producer, (low, high, shift) in self._extents.items():
            self._low[producer], self._high[producer], self._shift[producer] = low, high, shift

    def of(self, producer: np.ndarray | int, sequence: np.ndarray) -> np.ndarray:
        """The index of each identity, -1 where there is none. ``producer`` may be one for all."""
        if not len(sequence):
            return np.zeros(0, np.int64)
        if isinstance(producer, int):
            low, high, shift = self._extents.get(producer, (0, -1, 0))
            if int(sequence.min()) >= low and int(sequence.max()) <= high:
                return sequence + shift
            producer = np.full(len(sequence), producer, np.int64)
        inside = (producer >= 0) & (producer < len(self._low))
        at = np.where(inside, producer, 0)
        inside &= (sequence >= self._low[at]) & (sequence <= self._high[at])
        return np.where(inside, sequence + self._shift[at], -1)

    def identities(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The producer and sequence of each index."""
        producers = np.array(list(self._extents), np.int64)
        begins = np.array([low + shift for low, _, shift in self._extents.values()], np.int64)
        owner = producers[np.searchsorted(begins, indices, "right") - 1]
        return owner, indices - self._shift[owner]

    def range(self, intent: Intent) -> tuple[int, int]:
        """The indices of an intent: the first, and the one behind the last."""
        producer, first, count = intent
        begin = first + self._extents[producer][2] if count > 0 else 0
        return begin, begin + max(count, 0)

    def spans(self, group: Group) -> list[tuple[int, int]]:
        """Ranges of indices, first and last, outside of which no row of the group lies."""
        if group.producers is None or group.sequences is None:
            return [(0, self.count - 1)]
        (first, last), (least, most) = group.producers, group.sequences
        ranges = [
            (max(low, least) + shift, min(high, most) + shift)
            for producer, (low, high, shift) in self._extents.items()
            if first <= producer <= last
        ]
        return [(begin, end) for begin, end in ranges if begin <= end]

    def beyond(self, group: Group) -> bool:
        """Whether a row of the group may lack an index."""
        if not group.named or group.producers is None or group.sequences is None:
            return True
        first, last = group.producers
        return any(
            producer not in self._extents or group.sequences[0] < self._low[producer] or group.sequences[1] > self._high[producer]
            for producer in (range(first, last + 1) if last - first < len(self._extents) else (-1,))
        )
