"""Kafka's record batches (message format 2), decoded into columns of many records instead of an object for each.

A fetch answers with batches as they lie in the log. The header of a batch (61 bytes) says how many records it holds, one after the other::

    length varint | attributes | timestamp delta varint | offset delta varint | key length varint, key | value length varint, value |
    number of headers varint | ... name length varint, name, value length varint, value

They are walked by a compiled loop (``streamproof.evidence.compiled``).

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

from streamproof.evidence.compiled import BYTES, INTEGERS, compiled, part
from streamproof.evidence.folder import EvidenceError

_HEADER = struct.Struct(">qiibIhiqqqhii")
_SIZED = struct.Struct(">qi")  # how a batch begins: its first offset, and how many bytes follow
_CODEC, _LOG_APPEND, _TRANSACTIONAL, _CONTROL = 0x7, 0x8, 0x10, 0x20
_CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_XERIAL = b"\x82SNAPPY\0"
_ABORT = 0
_POSITIVE = (1 << 63) - 1


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
    """A row for each record: a place in ``data`` and a size (-1: null) for its key, its value and the header that was asked for."""

    data: np.ndarray
    offset: np.ndarray
    timestamp_ms: np.ndarray
    key: np.ndarray
    key_size: np.ndarray
    value: np.ndarray
    value_size: np.ndarray
    header: np.ndarray
    header_size: np.ndarray

    def __len__(self) -> int:
        return len(self.offset)

    def some(self, chosen: np.ndarray) -> Records:
        """The chosen rows."""
        columns = (self.offset, self.timestamp_ms, self.key, self.key_size, self.value, self.value_size, self.header, self.header_size)
        return Records(self.data, *(column[chosen] for column in columns))


def committed(data: memoryview, aborted: Sequence[tuple[int, int]]) -> tuple[list[Batch], int | None]:
    """The batches in ``data`` that a read-committed reader sees, and the offset behind the last whole one (None: there is none).

    ``aborted`` are the transactions of which the broker says so: (producer, first offset). A batch that the answer cuts off is left out.
    """
    pending, gone = sorted(aborted, key=lambda transaction: transaction[1], reverse=True), set[int]()
    batches: list[Batch] = []
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
            batches.append(Batch(at + _HEADER.size, end, count, attributes & _CODEC, base, since, appended))
        at = end
    return batches, behind


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
        value = shift = 0
        while True:
            byte = int(self.data[self.at])
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)
            shift += 7


def decode(data: np.ndarray, batches: Sequence[Batch], header: bytes) -> Records:
    """The records of ``batches`` in ``data``, with the first header called ``header`` of each. Raises EvidenceError when one is damaged."""
    data, begin, end = _plain(data, batches)
    base, since, appended, counts = (
        np.array([getattr(batch, name) for batch in batches], np.int64) for name in ("offset", "timestamp_ms", "appended_ms", "records")
    )
    damaged, columns = _walk(data, begin, end, counts, base, since, appended, np.frombuffer(header, np.uint8))
    if damaged >= 0:
        damage = f"{counts[damaged]} records from offset {base[damaged]} on do not fill its {end[damaged] - begin[damaged]} bytes"
        raise EvidenceError(f"a record batch is damaged: {damage}")
    return Records(data, *columns)


def _plain(data: np.ndarray, batches: Sequence[Batch]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The records of all batches uncompressed: a buffer, and where in it those of each begin and end."""
    begin, end = (np.array([getattr(batch, name) for batch in batches], np.int64) for name in ("begin", "end"))
    if not any(batch.codec for batch in batches):
        return data, begin, end
    parts = []
    for batch, low, high in zip(batches, begin.tolist(), end.tolist(), strict=True):
        part = data[low:high].data
        parts.append(_decompressed(part, _CODECS[batch.codec]) if batch.codec else part)
    end = np.cumsum([len(part) for part in parts])
    return np.frombuffer(b"".join(parts), np.uint8), np.r_[0, end[:-1]], end


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


@part
def _varint(data: Any, at: Any, end: Any) -> Any:
    """The signed varint that begins at ``at``, and where what follows it begins: behind ``end`` when there is no whole one."""
    value: Any = 0
    shift = 0
    while at < end and shift < 64:
        byte = np.int64(data[at])
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value >> 1 & _POSITIVE ^ -(value & 1), at
        shift += 7
    return 0, end + 1


@part
def _behind(at: Any, size: Any, end: Any) -> Any:
    """What follows something of this size: a null, below 0, takes no place; what is longer than there is ends behind ``end``."""
    return at + max(size, 0) if size <= end - at else end + 1


@compiled("Tuple((int64, UniTuple(int64[::1], 8)))", BYTES, *(INTEGERS,) * 6, BYTES)
def _walk(data: Any, begin: Any, end: Any, counts: Any, base: Any, since: Any, appended: Any, header: Any) -> Any:
    """The first batch that is damaged, or -1; and the columns of :class:`Records` behind ``data``."""
    rows = np.minimum(np.maximum(counts, 0), end - begin).sum()  # a record takes a byte at the least
    offset, timestamp = np.empty(rows, np.int64), np.empty(rows, np.int64)
    key, key_size = np.empty(rows, np.int64), np.empty(rows, np.int64)
    value, value_size = np.empty(rows, np.int64), np.empty(rows, np.int64)
    origin, origin_size = np.empty(rows, np.int64), np.empty(rows, np.int64)
    columns = offset, timestamp, key, key_size, value, value_size, origin, origin_size
    row = 0
    for batch in range(len(counts)):
        at, limit = begin[batch], end[batch]
        for _ in range(counts[batch]):
            if at >= limit:
                return batch, columns
            length, at = _varint(data, at, limit)
            stop = at + length
            time, at = _varint(data, at + 1, limit)
            number, at = _varint(data, at, limit)
            offset[row] = base[batch] + number
            timestamp[row] = since[batch] + time if appended[batch] < 0 else appended[batch]
            size, at = _varint(data, at, limit)
            key[row], key_size[row] = at, size
            size, at = _varint(data, _behind(at, size, limit), limit)
            value[row], value_size[row] = at, size
            origin[row], origin_size[row] = 0, -1
            headers, at = _varint(data, _behind(at, size, limit), limit)
            while headers > 0 and at < limit:
                size, name = _varint(data, at, limit)
                name_size, at = size, _behind(name, size, limit)
                size, at = _varint(data, at, limit)
                if origin_size[row] < 0 <= size and name_size == len(header) and at <= limit:
                    same = True
                    for place in range(name_size):
                        same &= data[name + place] == header[place]
                    if same:
                        origin[row], origin_size[row] = at, size
                at = _behind(at, size, limit)
                headers -= 1
            if at != stop or at > limit or headers:
                return batch, columns
            row += 1
        if at != limit:
            return batch, columns
    return -1, columns
