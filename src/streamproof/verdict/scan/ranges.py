"""Scan one range of records: compare the sends and deliveries of some million consecutive identities while reading them.

While a range is scanned, each of its records keeps: whether it was delivered, and whether more than once (a byte); the checksum (4 bytes)
and the time (8) of its first copy; where order is asked for, also that copy's place in the output (12 bytes); where atomicity is asked for,
the number of the copy's write set (4). The row groups of ``delivered/`` that can hold a record of the range are read first, then those of
``sent/``.

The result of a range is counts, moments, and *candidates*: the indices of the records that the fast pass could not clear. This module
judges nothing. The checkers judge the candidates with all their evidence (``streamproof.verdict.scan.scan``), so a needless candidate costs
time and nothing else. A record is clear when

    it is ACKED, has one copy, and that copy has the checksum that was sent; or is INDETERMINATE and has such a copy or none;
    or is REJECTED and has no copy; one that is due 0 times has no copy, one that is due more than once is not ACKED and has none
    OFFSET_AHEAD  its first copy is no later than the first report of any start that passed it over, and its time is not in doubt
    REORDERED     in its lane (source partition to output partition) both offsets ascend, and its key has no other lane from there
    TORN          its copy's write set belongs to the batch that read it, and holds as many records as that batch read
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamproof.evidence.clock import UNKNOWN, Clock
from streamproof.evidence.columns import array, flags, integers, numbers
from streamproof.evidence.expected import ONCE, Expected
from streamproof.evidence.outcome import Outcome
from streamproof.verdict.checks.atomicity import ranges
from streamproof.verdict.checks.commits import PARTITION_BITS, passed
from streamproof.verdict.scan.parts import Group, IdentityIndex, Parts
from streamproof.verdict.timing.recovery import decided

_ONCE, _AGAIN, _SENT = 1, 2, 4
_BUCKET_BITS, _MOST_PARTITIONS, _SEVERAL = 10, 1 << 16, -2
Lane = tuple[int, int]
WriteSet = tuple[int, int]


@dataclass(frozen=True)
class Asked:
    """The optional anomalies to look for, and what that takes."""

    ends: np.ndarray | None
    """The moments that decide everything written before them; None where a delivery's time is when it became visible."""
    progress: Sequence[dict[str, Any]]
    offset_ahead: bool
    reordered: bool
    torn: bool
    clock: Clock = field(default_factory=Clock)
    expected: Expected = ONCE


@dataclass
class RangeResult:
    """The result of one range. The results of a scan are added up in the order of the ranges."""

    unfit: bool = False
    """The evidence is not what a run writes (an identity that was sent twice, a delivery without a time): ignore this result then."""
    candidates: list[np.ndarray] = field(default_factory=list)
    accounts: dict[int, np.ndarray] = field(default_factory=dict)
    """By source partition: acked, indeterminate, rejected, and how many have exactly one copy."""
    written: Moments = field(default_factory=lambda: Moments())
    waits: Moments = field(default_factory=lambda: Moments())
    untimed: int = 0
    """How many records with one copy were delivered at an unknown time."""
    lanes: dict[Lane, tuple[int, int, int, int]] = field(default_factory=dict)
    """By source and output partition: the first and the last offset in each."""
    tangled: set[int] = field(default_factory=set)
    """The source partitions whose order the fast pass could not clear."""
    dominant: dict[tuple[str, int], int] = field(default_factory=dict)
    astray: set[tuple[str, int]] = field(default_factory=set)
    """Keys, by source partition, that have more than one lane or a record that was delivered more than once."""
    write_sets: set[WriteSet] = field(default_factory=set)
    held: dict[WriteSet, int] = field(default_factory=dict)
    due: dict[int, int] = field(default_factory=dict)


class Moments:
    """Times, or pairs of times, and how often each was seen; kept as one array of (key, count) that is folded when it has grown."""

    FOLD = 1 << 20

    def __init__(self) -> None:
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []
        self._rows = 0

    def add(self, first: np.ndarray, second: np.ndarray | None = None, counts: np.ndarray | None = None) -> None:
        """Add times in ms, or pairs of them; each once, or as often as ``counts`` say."""
        if not len(first):
            return
        second = first if second is None else second
        changes = changed(first) if second is first else changed(first, second)
        times = np.add.reduceat(counts, changes) if counts is not None else np.diff(np.r_[changes, len(first)])
        self._parts.append(_folded([(np.stack([first[changes], second[changes]]), times)]))
        self._rows += len(self._parts[-1][1])
        if self._rows > self.FOLD:
            self._parts = [_folded(self._parts)]
            self._rows = len(self._parts[0][1]) - self.FOLD // 2  # what cannot be folded is not tried again at once

    def merge(self, other: Moments) -> None:
        for (first, second), counts in other._parts:
            self.add(first, second, counts)

    def all(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Both times of each pair, ascending, and how often it was seen."""
        pairs, counts = _folded(self._parts) if self._parts else (np.zeros((2, 0), np.int64), np.zeros(0, np.int64))
        return pairs[0], pairs[1], counts


def _folded(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.concatenate([pair for pair, _ in parts], axis=1)
    counts = np.concatenate([count for _, count in parts])
    order = np.lexsort((pairs[1], pairs[0]))
    pairs, counts = pairs[:, order], counts[order]
    changes = changed(*pairs)
    return pairs[:, changes], np.add.reduceat(counts, changes)


def changed(*columns: np.ndarray) -> np.ndarray:
    """The rows that are not as the one before them: the first of each run of equal ones."""
    differs = np.zeros(len(columns[0]), bool)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


def _counted(numbers: np.ndarray) -> Iterator[tuple[int, int]]:
    """Each of these numbers, and how often it is there."""
    if not len(numbers):
        return
    least = int(numbers.min())
    if int(numbers.max()) - least > 16 * len(numbers) + 1000:
        values, counts = np.unique(numbers, return_counts=True)
    else:
        counts = np.bincount(numbers - least)
        there = np.flatnonzero(counts)
        values, counts = there + least, counts[there]
    yield from zip(values.tolist(), counts.tolist(), strict=True)


class RangeScan:
    """The records whose indices lie from ``begin`` until before ``end``."""

    def __init__(self, begin: int, end: int, index: IdentityIndex, asked: Asked, due: Due | None) -> None:
        self._begin, self._end, self._index, self._asked, self._due = begin, end, index, asked, due
        size = end - begin
        self._state = np.zeros(size, np.uint8)
        self._crc = np.zeros(size, np.uint32)
        self._at = np.zeros(size, np.int64)
        if asked.reordered:
            self._output, self._offset = np.zeros(size, np.int32), np.zeros(size, np.int64)
        if asked.torn:
            self._write_set = np.full(size, -1, np.int32)
        self._later: list[tuple[np.ndarray, np.ndarray]] = []  # places and write sets of copies that are not the first
        self._read: list[tuple[np.ndarray, np.ndarray]] = []  # places of records with such copies, and the batches that read them
        self._write_sets: dict[WriteSet, int] = {}
        self.result = RangeResult()

    def overlaps(self, group: Group) -> bool:
        return any(begin < self._end and end >= self._begin for begin, end in self._index.spans(group))

    def _in_range(self, group: Group, table: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """The rows that belong to this range, and their places in it."""
        producer = group.producer
        places = self._index.of(integers(table["producer"]) if producer is None else producer, integers(table["sequence"])) - self._begin
        if not group.named:  # a null is -1 here, which may be a producer's index
            named = flags(table["sequence"].is_valid()) & flags(table["producer"].is_valid())
            places = np.where(named, places, -1)
        if not len(places) or (int(places.min()) >= 0 and int(places.max()) < self._end - self._begin):
            return table, places
        rows = np.flatnonzero((places >= 0) & (places < self._end - self._begin))
        return table.take(array(rows)), places[rows]

    def _add_candidates(self, places: np.ndarray) -> None:
        if len(places):
            self.result.candidates.append(places + self._begin)

    # --- what was delivered -------------------------------------------------------------------------------------------------------

    def deliver(self, delivered: Parts) -> None:
        columns = ["sequence", "crc", "delivered_at"]
        columns += ["partition", "offset"] if self._asked.reordered else []
        columns += ["start", "batch"] if self._asked.torn else []
        for group in filter(self.overlaps, delivered.groups):
            for table in delivered.chunks(group, columns if group.producer is not None else ["producer", *columns]):
                self._deliver(*self._in_range(group, table))

    def _deliver(self, table: pa.Table, places: np.ndarray) -> None:
        if not len(places):
            return
        self.result.unfit |= table["delivered_at"].null_count > 0
        if table["crc"].null_count:
            damaged = flags(table["crc"].is_null())
            self._add_candidates(places[damaged])
        number = self._number_write_sets(table) if self._asked.torn else None
        low, high = int(places.min()), int(places.max()) + 1
        before = self._state[places]
        new = np.count_nonzero(self._state[low:high])
        self._state[places] = _ONCE
        if np.count_nonzero(self._state[low:high]) - new == len(places):
            first: Any = slice(None)
        else:  # some were there before, or come twice here
            self._state[places] = before
            seen, first, times = np.unique(places, return_index=True, return_counts=True)
            again = (times > 1) | (self._state[seen] > 0)
            first = first[self._state[seen] == 0]
            if number is not None:
                later = np.ones(len(places), bool)
                later[first] = False
                self._later.append((places[later], number[later]))
            self._state[seen] = np.where(again, _AGAIN, _ONCE)
        at = places[first]
        self._crc[at] = numbers(table["crc"], pa.uint32(), 0)[first]
        self._at[at] = self._asked.clock.believed(integers(table["delivered_at"]))[first]
        if self._asked.reordered:
            self._output[at] = integers(table["partition"])[first]
            self._offset[at] = integers(table["offset"])[first]
        if number is not None:
            self._write_set[at] = number[first]

    def _number_write_sets(self, table: pa.Table) -> np.ndarray:
        """The number of each copy's write set, -1 where the copy names none."""
        start, batch = integers(table["start"]), integers(table["batch"])
        changes = changed(start, batch)
        numbers = [
            self._write_sets.setdefault((one, other), len(self._write_sets)) if one >= 0 and other >= 0 else -1
            for one, other in zip(start[changes].tolist(), batch[changes].tolist(), strict=True)
        ]
        return np.repeat(np.array(numbers, np.int32), np.diff(np.r_[changes, len(start)]))

    # --- what was sent ------------------------------------------------------------------------------------------------------------

    def send(self, sent: Parts) -> None:
        columns = ["sequence", "partition", "offset", "crc", "outcome", "sent_at"] + (["key"] if self._asked.reordered else [])
        for group in filter(self.overlaps, sent.groups):
            for table in sent.chunks(group, columns if group.producer is not None else ["producer", *columns]):
                self._send(*self._in_range(group, table))
                if self.result.unfit:
                    return

    def _send(self, table: pa.Table, places: np.ndarray) -> None:
        if not len(places):
            return
        state = self._state[places]
        if (state & _SENT).any():
            self.result.unfit = True
        self._state[places] = state | _SENT
        if not (np.diff(places) > 0).all() and len(changed(np.sort(places))) < len(places):
            self.result.unfit = True
        partition, offset = integers(table["partition"]), integers(table["offset"])
        acked, rejected = _outcomes(table["outcome"])
        once, again = state == _ONCE, state == _AGAIN
        crc = numbers(table["crc"], pa.uint32(), 0)
        right = self._crc[places] == crc if not table["crc"].null_count else np.zeros(len(places), bool)
        clean = np.where(acked, once & right, np.where(rejected, state == 0, (state == 0) | (once & right)))
        if self._asked.expected.counts is not None:
            due = self._asked.expected.of_sequences(integers(table["sequence"]))
            clean = np.where(due == 1, clean, (state == 0) & ~(acked & (due > 1)))
        at = self._at[places]
        if self._asked.offset_ahead and self._due is not None:
            late = self._due.behind(at, partition, offset) | self._asked.clock.doubtful(at)
            clean &= ~(acked & once & (offset >= 0) & late)
        if not clean.all():
            self._add_candidates(places[~clean])
        self._account(partition, acked, rejected, once)
        self._time(at, integers(table["sent_at"]), once, acked)
        if self._asked.reordered:
            self._order(table["key"], places, partition, offset, once, again)
        if self._asked.torn and self._due is not None:
            self._tear(places, partition, offset, acked, once, again)

    def _account(self, partition: np.ndarray, acked: np.ndarray, rejected: np.ndarray, once: np.ndarray) -> None:
        least, most = int(partition.min()), int(partition.max())
        if most - least > 4 * len(partition):
            numbers, group = np.unique(partition, return_inverse=True)
        else:
            numbers, group = np.arange(least, most + 1), partition - least
        everything = np.bincount(group, minlength=len(numbers))
        columns = [everything if mask.all() else np.bincount(group[mask], minlength=len(numbers)) for mask in (acked, rejected, once)]
        counted = np.stack([columns[0], everything - columns[0] - columns[1], columns[1], columns[2]], axis=1)
        for number in np.flatnonzero(everything).tolist():
            self._add(int(numbers[number]), counted[number])

    def _add(self, partition: int, counted: np.ndarray) -> None:
        self.result.accounts[partition] = self.result.accounts.get(partition, np.zeros(4, np.int64)) + counted

    def _time(self, at: np.ndarray, sent_at: np.ndarray | None, once: np.ndarray, acked: np.ndarray) -> None:
        """The moments of the records with one copy. The first of several copies is only known from all of them (``scan_histories``)."""
        unknown = once & (at == UNKNOWN)
        if unknown.any():
            self.result.untimed += int(unknown.sum())
            once = once & ~unknown
        if not once.all():
            at = at[once]
            sent_at, acked = (sent_at[once] if sent_at is not None else None), acked[once]
        if not len(at):
            return
        least, most = int(at.min()), int(at.max())
        if most - least < 4 * len(at):
            counts = np.bincount(at - least)
            moments = np.flatnonzero(counts)
            self.result.written.add(moments + least, counts=counts[moments])
            visible = self._visible(np.arange(least, most + 1))[at - least]
        else:
            self.result.written.add(np.sort(at))
            visible = self._visible(at)
        if sent_at is not None:
            everything = bool(acked.all())
            self.result.waits.add(sent_at if everything else sent_at[acked], visible if everything else visible[acked])

    def _visible(self, written: np.ndarray) -> np.ndarray:
        return written if self._asked.ends is None else decided(written, self._asked.ends)

    def _order(
        self, keys: pa.ChunkedArray, places: np.ndarray, partition: np.ndarray, offset: np.ndarray, once: np.ndarray, again: np.ndarray
    ) -> None:
        encoded = keys.combine_chunks()
        encoded = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
        code = integers(pa.chunked_array([encoded.indices]))
        names = encoded.dictionary.to_pylist()
        judged = (code >= 0) & (offset >= 0)
        for row in np.flatnonzero(judged & again).tolist():
            self.result.astray.add((names[code[row]], int(partition[row])))
        rows = np.flatnonzero(judged & once)
        if not len(rows):
            return
        source, place, output, position = (
            partition[rows],
            offset[rows],
            self._output[places[rows]].astype(np.int64),
            self._offset[places[rows]],
        )
        width = int(output.max()) + 1
        lane = source * width + output
        order = np.argsort(lane.astype(np.uint16) if int(lane.max()) < 1 << 16 else lane, kind="stable")
        lane, place, position = lane[order], place[order], position[order]
        same = lane[1:] == lane[:-1]
        crossed = same & ((place[1:] <= place[:-1]) | (position[1:] <= position[:-1]))
        self.result.tangled.update((lane[1:][crossed] // width).tolist())
        borders = np.flatnonzero(np.r_[True, ~same, True])
        for begin, end in zip(borders[:-1].tolist(), (borders[1:] - 1).tolist(), strict=True):
            one = divmod(int(lane[begin]), width)
            passing(self.result, one, (int(place[begin]), int(place[end]), int(position[begin]), int(position[end])))
        sources = int(source.max()) + 1
        for combination, _ in _counted((code[rows] * sources + source) * width + output):
            rest, gone = divmod(combination, width)
            which, come = divmod(rest, sources)
            settling(self.result, (names[which], come), gone)

    def _tear(
        self, places: np.ndarray, partition: np.ndarray, offset: np.ndarray, acked: np.ndarray, once: np.ndarray, again: np.ndarray
    ) -> None:
        assert self._due is not None
        batch = np.where(acked & (offset >= 0), self._due.batch(partition, offset), -1)
        for number, count in _counted(batch[batch >= 0]):
            self.result.due[number] = self.result.due.get(number, 0) + count
        self._read.append((places[again], batch[again]))
        self._hold(np.where(once | again, self._write_set[places], -1), batch)

    def _hold(self, write_set: np.ndarray, batch: np.ndarray) -> None:
        """Count the records that each write set holds. ``batch`` has the batch that read each record."""
        write_sets = list(self._write_sets)
        of = np.array([number for _, number in write_sets] + [-2], np.int64)
        for number, count in _counted(write_set[(write_set >= 0) & (of[write_set] == batch)]):
            self.result.held[write_sets[number]] = self.result.held.get(write_sets[number], 0) + count

    def _hold_later(self) -> None:
        """Count the later copies: they put a record into write sets other than that of its first copy."""
        if not self._later or not self._read:
            return
        read, batch = (np.concatenate(column) for column in zip(*self._read, strict=True))
        copies = np.unique(np.stack([np.concatenate(column) for column in zip(*self._later, strict=True)]), axis=1)
        order = np.argsort(read)
        at = np.minimum(np.searchsorted(read[order], copies[0]), max(len(read) - 1, 0))
        here = (read[order][at] == copies[0]) & (copies[1] != self._write_set[copies[0]]) if len(read) else np.zeros(len(at), bool)
        self._hold(copies[1][here], batch[order][at[here]])

    # --- what is left -------------------------------------------------------------------------------------------------------------

    def settle(self, intended: Sequence[tuple[int, int]]) -> RangeResult:
        """What was intended (ranges of indices) and has no row is INDETERMINATE; what was delivered and was neither is a candidate."""
        for intent in intended:
            begin, end = (min(max(index - self._begin, 0), self._end - self._begin) for index in intent)
            places = np.flatnonzero(self._state[begin:end] < _SENT) + begin
            if len(places):
                state, nobody = self._state[places], np.zeros(len(places), bool)
                self._add(-1, np.array([0, len(places), 0, int((state == _ONCE).sum())], np.int64))
                self._time(self._at[places], None, state == _ONCE, nobody)
                self._add_candidates(places[state == _AGAIN] if self._asked.expected.counts is None else places[state > 0])
                self._state[places] = state | _SENT
        self._add_candidates(np.flatnonzero((self._state > 0) & (self._state < _SENT)))
        self._hold_later()
        self.result.write_sets.update(self._write_sets)
        return self.result


def passing(result: RangeResult, lane: Lane, through: tuple[int, int, int, int]) -> None:
    """Records passed through a lane, behind those that did before: if not, its source partition is tangled."""
    before = result.lanes.get(lane)
    if before is not None:
        if through[0] <= before[1] or through[2] <= before[3]:
            result.tangled.add(lane[0])
        through = (before[0], max(before[1], through[1]), before[2], max(before[3], through[3]))
    result.lanes[lane] = through


def settling(result: RangeResult, key: tuple[str, int], output: int) -> None:
    """A key's records came to an output partition: if it is another than before, the key is astray."""
    if result.dominant.setdefault(key, output) != output:
        result.astray.add(key)


def _outcomes(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Which are ACKED, and which REJECTED."""
    encoded = column.combine_chunks()
    encoded = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
    names = np.array([*encoded.dictionary.to_pylist(), None], object)
    if len(names) == 2 and not encoded.null_count:
        return np.full(len(encoded), names[0] == Outcome.ACKED), np.full(len(encoded), names[0] == Outcome.REJECTED)
    codes = integers(pa.chunked_array([encoded.indices]))
    return (names == Outcome.ACKED)[codes].astype(bool), (names == Outcome.REJECTED)[codes].astype(bool)


class Due:
    """Which micro-batch read a source offset, and when it was first reported that the job had passed it over.

    Tables over buckets of offsets answer most lookups: what holds for a whole bucket is not searched for each of its records.
    """

    def __init__(self, progress: Sequence[dict[str, Any]]) -> None:
        self._passed = passed(progress)
        spans = sorted(
            (int(name), begins.get(name, 0), end, number)
            for number, (begins, ends) in ranges(progress).items()
            for name, end in ends.items()
            if begins.get(name, 0) < end
        )
        self.plain = all(one[0] < other[0] or one[2] <= other[1] for one, other in itertools.pairwise(spans))
        """Whether one batch alone read each offset."""
        columns = np.array(spans, np.int64).reshape(-1, 4).T
        self._from, self._until = (columns[0] << PARTITION_BITS) + columns[1], (columns[0] << PARTITION_BITS) + columns[2]
        self._number = columns[3]
        reached: dict[int, int] = {}
        for line in progress:
            for name, end in line["until"].items():
                reached[int(name)] = max(reached.get(int(name), 0), end)
        self._buckets = _OffsetIndex(reached)
        first, last = self._buckets.places()
        self._committed = self._exactly_committed(first)
        batch = self._exact_batch(first)
        alike = (self._last_begun(first) == self._last_begun(last)) & (batch == self._exact_batch(last))
        self._batch = np.where(alike, batch, _SEVERAL)

    def behind(self, at: np.ndarray, partition: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """Which moments lie behind the earliest report, of whatever start, that passed over the offset."""
        bucket = self._buckets.of(partition, offset)
        late = (at > self._committed[bucket]) | (bucket < 0)
        rows = np.flatnonzero(late)
        late[rows] = at[rows] > self._exactly_committed((partition[rows] << PARTITION_BITS) + offset[rows])
        return np.asarray(late)

    def batch(self, partition: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """The number of the batch, -1 where none is known."""
        bucket = self._buckets.of(partition, offset)
        batches = self._batch[bucket]
        rows = np.flatnonzero((batches == _SEVERAL) | (bucket < 0))
        batches[rows] = self._exact_batch((partition[rows] << PARTITION_BITS) + offset[rows])
        return np.asarray(batches)

    def _exactly_committed(self, place: np.ndarray) -> np.ndarray:
        ends, times = self._passed
        return np.asarray(times[np.searchsorted(ends, place, "right")])

    def _exact_batch(self, place: np.ndarray) -> np.ndarray:
        if not len(self._from):
            return np.full(len(place), -1, np.int64)
        at = self._last_begun(place)
        return np.where((at >= 0) & (place < self._until[at]), self._number[at], -1)

    def _last_begun(self, place: np.ndarray) -> np.ndarray:
        """The last of the batches' ranges that begins at this place or before it, -1 when none does."""
        return np.searchsorted(self._from, place, "right") - 1


class _OffsetIndex:
    """Buckets of offsets of each partition, up to its end. Offsets elsewhere have the bucket -1, the last one, which has no partition."""

    def __init__(self, ends: dict[int, int]) -> None:
        valid_ends = {partition: end for partition, end in ends.items() if 0 <= partition < _MOST_PARTITIONS}
        counts = np.zeros(max(valid_ends, default=-1) + 2, np.int64)
        for partition, end in valid_ends.items():
            counts[partition] = -(-end >> _BUCKET_BITS)
        self._counts, self._base = counts, np.cumsum(counts) - counts

    def of(self, partition: np.ndarray, offset: np.ndarray) -> np.ndarray:
        owner = np.where((partition >= 0) & (partition < len(self._counts)), partition, -1)  # the last has none
        number = offset >> _BUCKET_BITS
        return np.where((offset >= 0) & (number < self._counts[owner]), self._base[owner] + number, -1)

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last place of each bucket, and of the one without a partition."""
        owner = np.repeat(np.arange(len(self._counts)), self._counts)
        first = (owner << PARTITION_BITS) + ((np.arange(len(owner)) - self._base[owner]) << _BUCKET_BITS)
        return np.r_[first, 0], np.r_[first + (1 << _BUCKET_BITS) - 1, 0]
