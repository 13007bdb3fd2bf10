"""Kafka's record batches (message format 2), decoded with numpy: columns of many records instead of an object for each.

A fetch answers with batches as they lie in the log. The header of a batch (61 bytes) says how many records it holds; a record begins with
its length, and so where one begins is only known when the one before has been read::

    length varint | attributes | timestamp delta varint | offset delta varint | key length varint, key | value length varint, value |
    number of headers varint | ... name length varint, name, value length varint, value

Records that carry an identity (``delivery.identity``) are found all at once: their values begin alike. From where a value begins, its
length before it and the headers behind it tell where the record ends, which is where the next begins; then every record is read from its
beginning, and must come out where it was found. A batch that holds anything else, or does not come out so, is walked record by record.

What a read-committed reader does not see is left out here: control batches, and those of aborted transactions, which the broker names
with its answer (their producer, and from which offset on; a transaction ends with its marker).

Checked against: Kafka 4.1 (``DefaultRecordBatch``, ``DefaultRecord``, ``CompletedFetch.containsAbortMarker`` and its callers).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from delivery.folder import EvidenceError
from delivery.identities import BEFORE, BEHIND

_HEADER = struct.Struct(">qiibIhiqqqhii")
_SIZED = struct.Struct(">qi")  # how a batch begins: its first offset, and how many bytes follow
_CODEC, _LOG_APPEND, _TRANSACTIONAL, _CONTROL = 0x7, 0x8, 0x10, 0x20
_CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_XERIAL = b"\x82SNAPPY\0"
_ABORT = 0
_FEW = 16  # headers: a record with more is walked to
_MANY = 1 << 31
_VALUE_BEGINS, _SEVEN_BYTES = np.frombuffer(b'{"id":"\0', "<u8")[0], np.uint64((1 << 56) - 1)


@dataclass(frozen=True)
class Batch:
    """One batch: where in the answer its records begin and end, how many they are, and what their offsets and timestamps count from."""

    begin: int
    end: int
    records: int
    codec: int
    offset: int
    timestamp_ms: int
    appended_ms: int  # the broker's own time for all of its records, -1 where they have theirs


@dataclass(frozen=True)
class Records:
    """A row for each record: a place in ``data`` and a size (-1: null) for its value and for the header that was asked for."""

    data: np.ndarray
    offset: np.ndarray
    timestamp_ms: np.ndarray
    value: np.ndarray
    value_size: np.ndarray
    header: np.ndarray
    header_size: np.ndarray

    def __len__(self) -> int:
        return len(self.offset)

    def some(self, chosen: np.ndarray) -> Records:
        """The chosen rows."""
        columns = (self.offset, self.timestamp_ms, self.value, self.value_size, self.header, self.header_size)
        return Records(self.data, *(column[chosen] for column in columns))


def committed(data: memoryview, aborted: Sequence[tuple[int, int]]) -> tuple[list[Batch], int | None]:
    """The batches in ``data`` that a read-committed reader sees, and the offset behind the last whole one (None: there is none).

    ``aborted`` are the transactions of which the broker says so: (producer, first offset). A batch that the answer cuts off is left out.
    """
    pending, gone = sorted(aborted, key=lambda transaction: transaction[1], reverse=True), set[int]()
    found: list[Batch] = []
    at, behind = 0, None
    while at + _HEADER.size <= len(data):
        base, length = _SIZED.unpack_from(data, at)
        end = at + _SIZED.size + length
        if end > len(data):
            break
        _, _, _, magic, _, attributes, last, since, newest, producer, _, _, count = _HEADER.unpack_from(data, at)
        if magic != 2:
            raise EvidenceError(f"a record batch at offset {base} has message format {magic}, expected 2 (Kafka 0.11 and later)")
        behind = base + last + 1
        while pending and pending[-1][1] < behind:
            gone.add(pending.pop()[0])
        if attributes & _CONTROL:
            if _is_abort(data, at + _HEADER.size):
                gone.discard(producer)
        elif count and not (attributes & _TRANSACTIONAL and producer in gone):
            appended = newest if attributes & _LOG_APPEND else -1
            found.append(Batch(at + _HEADER.size, end, count, attributes & _CODEC, base, since, appended))
        at = end
    return found, behind


def _is_abort(data: memoryview, at: int) -> bool:
    """Whether a control record says that a transaction was aborted. Its key has a version and the type, two bytes each."""
    cursor = _Cursor(data, at)
    cursor.varint()
    cursor.at += 1
    for _ in range(3):
        cursor.varint()
    return int.from_bytes(data[cursor.at + 2 : cursor.at + 4]) == _ABORT


class _Cursor:
    """Reads one varint after the other."""

    def __init__(self, data: Any, at: int) -> None:
        self.data, self.at = data, at

    def varint(self) -> int:
        found = shift = 0
        while True:
            byte = int(self.data[self.at])
            self.at += 1
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found >> 1 ^ -(found & 1)
            shift += 7


def decode(data: np.ndarray, batches: Sequence[Batch], header: bytes) -> Records:
    """The records of ``batches``, with the first header called ``header`` of each.

    ``data`` is the answer, with ``BEFORE`` and ``BEHIND`` bytes around it (which ``begin`` and ``end`` do not count).
    """
    data, begin, end = _plain(data, batches)
    counts = np.array([batch.records for batch in batches], np.int64)
    columns, whole = _found_at_once(data, begin, end, counts, header)
    if not whole.all():
        rows = np.repeat(~whole, counts)
        starts = np.concatenate([_walked(data, *border) for border in zip(begin[~whole], end[~whole], counts[~whole], strict=True)])
        _, timestamp, offset, value, value_size = _fields(data, starts)
        name, name_size, _ = _headers(data, value + np.maximum(value_size, 0), header)
        for column, read in zip(columns, (offset, timestamp, value, value_size, name, name_size), strict=True):
            column[rows] = read
    offset, timestamp, value, value_size, name, name_size = columns
    offset += np.repeat(np.array([batch.offset for batch in batches], np.int64), counts)
    timestamp += np.repeat(np.array([batch.timestamp_ms for batch in batches], np.int64), counts)
    appended = np.repeat(np.array([batch.appended_ms for batch in batches], np.int64), counts)
    return Records(data, offset, np.where(appended < 0, timestamp, appended), value, value_size, name, name_size)


def _plain(data: np.ndarray, batches: Sequence[Batch]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The records of all batches uncompressed: a buffer, and where in it those of each begin and end."""
    begin = np.array([batch.begin for batch in batches], np.int64) + BEFORE
    end = np.array([batch.end for batch in batches], np.int64) + BEFORE
    if not any(batch.codec for batch in batches):
        return data, begin, end
    parts = []
    for batch, low, high in zip(batches, begin.tolist(), end.tolist(), strict=True):
        part = data[low:high].data
        parts.append(_decompressed(part, _CODECS[batch.codec]) if batch.codec else part)
    sizes = np.array([len(part) for part in parts], np.int64)
    joined = np.frombuffer(b"".join([bytes(BEFORE), *parts, bytes(BEHIND)]), np.uint8)
    end = np.cumsum(sizes) + BEFORE
    return joined, end - sizes, end


def _decompressed(part: memoryview, codec: str) -> bytes:
    if codec != "snappy":
        return bytes(pa.CompressedInputStream(pa.BufferReader(part), codec).read())
    if bytes(part[: len(_XERIAL)]) != _XERIAL:
        return _snappy(part)
    blocks, at = [], len(_XERIAL) + 8  # behind two versions
    while at < len(part):
        size = int.from_bytes(part[at : at + 4])
        blocks.append(_snappy(part[at + 4 : at + 4 + size]))
        at += 4 + size
    return b"".join(blocks)


def _snappy(block: memoryview) -> bytes:
    """Snappy says the size of what it holds before it: a varint, without a sign."""
    size = shift = 0
    for byte in block:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return bytes(pa.decompress(block, size, "snappy", asbytes=True))


def _walked(data: np.ndarray, begin: int, end: int, count: int) -> np.ndarray:
    """Where each record of a batch begins, one after the other."""
    cursor, starts = _Cursor(data.data, int(begin)), np.zeros(count, np.int64)
    for row in range(count):
        starts[row] = cursor.at
        length = cursor.varint()
        cursor.at += length
    if cursor.at != end:
        raise EvidenceError(f"a record batch is damaged: its {count} records end at byte {cursor.at - begin}, not {end - begin}")
    return starts


def _found_at_once(
    data: np.ndarray, begin: np.ndarray, end: np.ndarray, counts: np.ndarray, header: bytes
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """The columns of :class:`Records` for the batches for which that works, and which these are; the rows of the others are zeros."""
    values = _values(data, begin, end)
    low, high = np.searchsorted(values, begin), np.searchsorted(values, end)
    good = high - low == counts
    values, held = values[np.repeat(good, high - low)], counts[good]
    last = np.cumsum(held) - 1
    size = _size_before(data, values)
    name, name_size, stops = _headers(data, values + size, header, _FEW)
    starts = np.empty(len(values), np.int64)
    starts[1:] = stops[:-1]
    starts[last - held + 1] = begin[good]
    read_stops, timestamp, offset, value, value_size = _fields(data, starts)
    right = (read_stops == stops) & (value == values) & (value_size == size)
    right[last] &= stops[last] == end[good]
    if len(held):
        good[np.flatnonzero(good)] = np.logical_and.reduceat(right, last - held + 1)
    found: tuple[np.ndarray, ...] = (offset, timestamp, value, value_size, name, name_size)
    if len(values) == counts.sum():
        return found, good
    rows = np.repeat(high - low == counts, counts)
    columns = tuple(np.zeros(len(rows), np.int64) for _ in found)
    for column, read in zip(columns, found, strict=True):
        column[rows] = read
    return columns, good


def _values(data: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Where, inside of the batches, something begins as a value with an identity does."""
    places = np.flatnonzero(data[:-BEHIND] == ord("{"))
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    found = places[words[places] & _SEVEN_BYTES == _VALUE_BEGINS]
    low, high = np.searchsorted(found, begin), np.searchsorted(found, end)
    if (high - low).sum() == len(found):
        return np.asarray(found)
    batch = np.searchsorted(begin, found, "right") - 1
    return np.asarray(found[(batch >= 0) & (found < end[batch])])


def _fields(data: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of the record that begins at each of ``starts``: where it ends, the deltas of its timestamp and offset, where its value begins, and
    that one's size. Where no record begins, what comes out means nothing."""
    limit = len(data) - BEHIND
    length, at = _varints(data, np.clip(starts, 0, limit))
    stops = at + length
    timestamp, at = _varints(data, at + 1)
    offset, at = _varints(data, at)
    key_size, at = _varints(data, at)
    value_size, value = _varints(data, np.clip(at + np.maximum(key_size, 0), 0, limit))
    return stops, timestamp, offset, value, value_size


def _size_before(data: np.ndarray, values: np.ndarray) -> np.ndarray:
    """What the varint says that ends before each value; of more than three bytes only the last three."""
    size = data[values - 1].astype(np.int64)
    more = np.ones(len(values), bool)
    for back in (2, 3):
        byte = data[values - back]
        more &= byte >= 0x80
        size = np.where(more, size << 7 | byte & 0x7F, size)
    return np.asarray(size >> 1)


def _varints(data: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The signed varint at each place, and where what follows it begins."""
    byte = data[at]
    found, at = (byte & 0x7F).astype(np.int64), at + 1
    rows, shift = np.flatnonzero(byte >= 0x80), 7
    if len(rows) * 2 > len(byte):  # most have a second byte: it costs less to read all of them
        more = byte >= 0x80
        second = np.where(more, data[at], np.uint8(0))
        found |= (second & 0x7F).astype(np.int64) << 7
        at += more
        rows, shift = np.flatnonzero(second >= 0x80), 14
    while len(rows) and shift < 64:
        byte = data[at[rows]]
        found[rows] |= (byte & 0x7F).astype(np.int64) << shift
        at[rows] += 1
        rows, shift = rows[byte >= 0x80], shift + 7
    return found >> 1 ^ -(found & 1), at


def _headers(data: np.ndarray, at: np.ndarray, header: bytes, most: int = _MANY) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The value of the first header called ``header`` of each record whose headers begin ``at``: place and size; and where they end.

    A record with more than ``most`` headers has none here. Where something else lies than headers, what comes out means nothing.
    """
    limit = len(data) - BEHIND
    count, at = _varints(data, np.clip(at, 0, limit))
    if len(count) and count.min() == count.max() == 1:  # as most are: there is no need to pick
        name_size, name = _varints(data, at)
        size, place = _varints(data, np.clip(name + np.maximum(name_size, 0), 0, limit))
        ours = name_size == len(header)
        ours &= _same(data, np.minimum(name, limit), header)
        at = np.clip(place + np.maximum(size, 0), 0, limit)
        return place, size if ours.all() else np.where(ours, size, -1), at
    place, size = np.zeros(len(at), np.int64), np.full(len(at), -1, np.int64)
    rows = np.flatnonzero((count > 0) & (count <= most))
    left = count[rows]
    while len(rows):
        name_size, name = _varints(data, at[rows])
        value_size, value = _varints(data, np.clip(name + np.maximum(name_size, 0), 0, limit))
        ours = (name_size == len(header)) & (size[rows] < 0)
        ours[ours] = _same(data, np.minimum(name[ours], limit), header)
        place[rows[ours]], size[rows[ours]] = value[ours], value_size[ours]
        at[rows] = np.clip(value + np.maximum(value_size, 0), 0, limit)
        left = left - 1
        rows, left = rows[left > 0], left[left > 0]
    return place, size, at


def _same(data: np.ndarray, at: np.ndarray, text: bytes) -> np.ndarray:
    """Whether each piece is ``text``."""
    whole = -(-len(text) // 8) * 8
    wanted, counted = (
        np.frombuffer(text.ljust(whole, b"\0"), np.uint64),
        np.frombuffer((b"\xff" * len(text)).ljust(whole, b"\0"), np.uint64),
    )
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    same = np.ones(len(at), bool)
    for number in range(len(wanted)):
        same &= words[at + 8 * number] & counted[number] == wanted[number]
    return same


def _pieces(data: np.ndarray, at: np.ndarray, size: int) -> np.ndarray:
    """``size`` bytes from each place on, a row each."""
    return np.asarray(np.lib.stride_tricks.as_strided(data, (len(data) - size + 1, size), (1, 1), writeable=False)[at])


def texts(data: np.ndarray, at: np.ndarray, size: np.ndarray, longest: int) -> tuple[list[bytes | None], np.ndarray]:
    """The pieces ``data[at : at + size]`` as runs of equal ones: what each run holds (None: null, or longer), and each row's run."""
    size = np.where((size < 0) | (size > longest), -1, size)
    width = -(-max(int(size.max(initial=0)), 1) // 8) * 8
    rows = _pieces(data, np.where(size < 0, 0, at), width)
    if len(size) and size.min() == size.max() >= 0:
        rows[:, size[0] :] = 0
    else:
        rows[np.arange(width) >= size[:, None]] = 0
    words = rows.view(np.uint64)
    differs = size[1:] != size[:-1]
    for column in words.T:
        differs |= column[1:] != column[:-1]
    changes = np.flatnonzero(np.r_[True, differs]) if len(size) else size
    found = [bytes(rows[row, : size[row]]) if size[row] >= 0 else None for row in changes.tolist()]
    return found, np.repeat(np.arange(len(changes)), np.diff(np.r_[changes, len(size)]))
