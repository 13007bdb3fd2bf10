"""The identities of many records at once: what :func:`streamproof.evidence.identity.decode` says of each, in columns.

Compiled (``streamproof.evidence.compiled``), because this is done for every record that was delivered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamproof.evidence.compiled import BYTES, INTEGERS, compiled, part
from streamproof.evidence.envelopes import closed
from streamproof.evidence.identity import KEYED, PREFIX_LENGTH

_TEMPLATE = b'{"id":"????-????????????-????????-????????","payload":'
_EXPECTED = np.frombuffer(_TEMPLATE, np.uint8)
_LITERAL = np.frombuffer(bytes(0xFF * (byte != ord("?")) for byte in _TEMPLATE), np.uint8)
_PRODUCER, _SEQUENCE, _LENGTH, _CRC = (_TEMPLATE.index(b"?"), *(_TEMPLATE.index(b"-", at) + 1 for at in (8, 12, 25)))


@dataclass(frozen=True)
class Identities:
    """A row for each value. ``present`` is False where there is no identity: the rest of that row means nothing. ``crc`` is of the key and
    payload that were read, ``carried_crc`` what the record says of itself, ``closed`` whether what follows the payload ends the value."""

    present: np.ndarray
    producer: np.ndarray
    sequence: np.ndarray
    crc: np.ndarray
    carried_crc: np.ndarray
    closed: np.ndarray

    @property
    def intact(self) -> np.ndarray:
        return np.asarray(self.present & self.closed & (self.crc == self.carried_crc))


def decode(data: np.ndarray, at: np.ndarray, size: np.ndarray, key_at: np.ndarray, key_size: np.ndarray) -> Identities:
    """The identities of the values ``data[at : at + size]`` under the keys ``data[key_at : key_at + key_size]``, all of which lie in
    ``data``; a size below 0 is a null."""
    present, producer, sequence, crc, carried, tail = _decode(data, at, size, key_at, key_size)
    return Identities(present, producer, sequence, crc, carried, closed(data, tail, np.where(present, at + size, tail)))


def crc32s(data: np.ndarray, at: np.ndarray, size: np.ndarray, before: np.ndarray | None = None) -> np.ndarray:
    """The crc32 of each ``data[at : at + size]``, as zlib has it; ``before`` are the checksums of what lies before each."""
    return np.asarray(_crc32s(data, at, size, np.zeros(len(at), np.int64) if before is None else before))


def _crc_tables() -> np.ndarray:
    """What a byte makes of a register, alone and with up to 15 bytes behind it."""
    one = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        one = np.where(one & 1, one >> 1 ^ np.uint32(0xEDB88320), one >> 1)
    after = [one]
    for _ in range(15):
        after.append(one[after[-1] & 0xFF] ^ after[-1] >> 8)
    return np.array(after, np.uint32)


_AFTER = _crc_tables()
_BYTE, _EIGHT, _SIXTEEN, _ONES, _KEYED = np.uint32(0xFF), np.uint32(8), np.uint32(16), np.uint32(0xFFFFFFFF), np.uint32(KEYED)


@part
def _four(data: Any, at: Any) -> Any:
    """Four bytes as a number, the first of them the lowest."""
    first = np.uint64(at)  # without a sign, so that no index is looked at for being negative
    low = np.uint32(data[first]) | np.uint32(data[first + np.uint64(1)]) << _EIGHT
    return low | np.uint32(data[first + np.uint64(2)]) << _SIXTEEN | np.uint32(data[first + np.uint64(3)]) << np.uint32(24)


@part
def _step(word: Any, behind: Any) -> Any:
    """What four bytes make of a register that they were added to, with so many bytes behind them."""
    low = _AFTER[behind + 3, word & _BYTE] ^ _AFTER[behind + 2, word >> _EIGHT & _BYTE]
    return low ^ _AFTER[behind + 1, word >> _SIXTEEN & _BYTE] ^ _AFTER[behind, word >> np.uint32(24)]


@part
def _crc32(data: Any, at: Any, end: Any, before: Any) -> Any:
    """Sixteen bytes a step, as long as there are so many. ``before`` is the checksum of what lies before them."""
    register = before ^ _ONES
    while at + 16 <= end:
        first = _step(register ^ _four(data, at), 12) ^ _step(_four(data, at + 4), 8)
        register = first ^ _step(_four(data, at + 8), 4) ^ _step(_four(data, at + 12), 0)
        at += 16
    while at + 4 <= end:
        register = _step(register ^ _four(data, at), 0)
        at += 4
    while at < end:
        register = _AFTER[0, (register ^ data[at]) & _BYTE] ^ register >> _EIGHT
        at += 1
    return register ^ _ONES


@compiled("uint32[::1]", BYTES, INTEGERS, INTEGERS, INTEGERS)
def _crc32s(data: Any, at: Any, size: Any, before: Any) -> Any:
    crcs = np.empty(len(at), np.uint32)
    for row in range(len(at)):
        crcs[row] = _crc32(data, at[row], at[row] + size[row], np.uint32(before[row]))
    return crcs


@part
def _hexadecimal(data: Any, at: Any, digits: Any) -> Any:
    """What so many hexadecimal digits come to, and whether all of them are some: those that Python writes, in lower case."""
    number: Any = 0
    right: Any = True
    for place in range(at, at + digits):
        byte = np.int64(data[place])
        letter = byte > 0x39
        value = byte - 0x57 if letter else byte - 0x30
        right &= (10 <= value <= 15) if letter else value >= 0
        number = number << 4 | value
    return number, right


@compiled("Tuple((boolean[::1], int32[::1], int64[::1], uint32[::1], uint32[::1], int64[::1]))", BYTES, *(INTEGERS,) * 4)
def _decode(data: Any, at: Any, size: Any, key_at: Any, key_size: Any) -> Any:
    rows = len(at)
    present, producer, sequence = np.zeros(rows, np.bool_), np.zeros(rows, np.int32), np.zeros(rows, np.int64)
    crc, carried, tail = np.zeros(rows, np.uint32), np.zeros(rows, np.uint32), np.zeros(rows, np.int64)
    for row in range(rows):
        begin = at[row]
        if size[row] < PREFIX_LENGTH:
            continue
        other = np.uint8(0)
        for place in range(PREFIX_LENGTH):
            other |= (data[begin + place] ^ _EXPECTED[place]) & _LITERAL[place]
        producer[row], first = _hexadecimal(data, begin + _PRODUCER, 4)
        sequence[row], second = _hexadecimal(data, begin + _SEQUENCE, 12)
        length, third = _hexadecimal(data, begin + _LENGTH, 8)
        carried[row], fourth = _hexadecimal(data, begin + _CRC, 8)
        if other == 0 and first and second and third and fourth and length <= size[row] - PREFIX_LENGTH:
            present[row] = True
            tail[row] = begin + PREFIX_LENGTH + length
            of_key = np.uint32(0)
            if key_size[row] >= 0:
                of_key = _crc32(data, key_at[row], key_at[row] + key_size[row], _KEYED)
            crc[row] = _crc32(data, begin + PREFIX_LENGTH, tail[row], of_key)
    return present, producer, sequence, crc, carried, tail
