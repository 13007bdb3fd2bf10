"""The identities of many records at once: what :func:`delivery.identity.decode` says of each, in columns.

The prefix of a value has a fixed width, so the prefixes of all values are rows of one array, and the hexadecimal digits of an identity,
two a byte, are the 16 bytes of two big-endian numbers: producer and sequence, length and checksum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from delivery.checksums import PAD, crc32s
from delivery.identity import PREFIX_LENGTH

BEFORE, BEHIND = PAD, 64
"""How many bytes a buffer must have before its first value and behind its last: they may be read, and count for nothing."""


@dataclass(frozen=True)
class Identities:
    """A row for each value. ``found`` is False where there is no identity: the rest of that row means nothing. ``crc`` is of the payload
    that was read, ``carried_crc`` what the record says of itself."""

    found: np.ndarray
    producer: np.ndarray
    sequence: np.ndarray
    crc: np.ndarray
    carried_crc: np.ndarray

    @property
    def intact(self) -> np.ndarray:
        return np.asarray(self.found & (self.crc == self.carried_crc))


_TEMPLATE = b'{"id":"????-????????????-????????-????????","payload":'
_WORDS = -(-PREFIX_LENGTH // 8)
_LITERAL = np.frombuffer(bytes(0xFF * (byte != ord("?")) for byte in _TEMPLATE).ljust(8 * _WORDS, b"\0"), np.uint64)
_EXPECTED = np.frombuffer(_TEMPLATE.replace(b"?", b"\0").ljust(8 * _WORDS, b"\0"), np.uint64)
_PRODUCER, _SEQUENCE, _LENGTH, _CRC = (_TEMPLATE.index(b"?"), *(_TEMPLATE.index(b"-", at) + 1 for at in (8, 12, 25)))


def decode(data: np.ndarray, at: np.ndarray, size: np.ndarray) -> Identities:
    """The identities of the values ``data[at : at + size]``; a ``size`` below 0 is a null. ``data`` has ``BEFORE`` and ``BEHIND``."""
    windows = np.lib.stride_tricks.as_strided(data, (len(data) - 8 * _WORDS + 1, 8 * _WORDS), (1, 1), writeable=False)
    rows = windows[at]
    words = rows.view(np.uint64)
    other = np.zeros(len(at), np.uint64)
    for number in range(_WORDS):
        other |= (words[:, number] ^ _EXPECTED[number]) & _LITERAL[number]
    # The last four digits of the sequence lie behind the producer's four: eight, as the others have.
    lower = _eight(rows, _SEQUENCE + 4)
    mixed, bad = _hexadecimal(_eight(rows, _PRODUCER) & _LOW | lower & ~_LOW)
    upper, worse = _hexadecimal(_eight(rows, _SEQUENCE))
    length, awful = _hexadecimal(_eight(rows, _LENGTH))
    carried, worst = _hexadecimal(_eight(rows, _CRC))
    found = (other | bad | worse | awful | worst) == 0
    found &= size - PREFIX_LENGTH >= length
    found &= size >= PREFIX_LENGTH
    crc = np.zeros(len(at), np.uint32)
    if found.all():
        crc = crc32s(data, at + PREFIX_LENGTH, length)
    else:
        crc[found] = crc32s(data, at[found] + PREFIX_LENGTH, length[found])
    sequence = upper << 16 | mixed & 0xFFFF
    return Identities(found, (mixed >> 16).astype(np.int32), sequence, crc, carried.astype(np.uint32))


_LOW = np.uint64(0xFFFFFFFF)


def _eight(rows: np.ndarray, begin: int) -> np.ndarray:
    """Eight bytes of each row as a number, the first of them the lowest."""
    return np.ndarray((len(rows),), "<u8", rows, begin, (rows.strides[0],)).copy() if len(rows) else np.zeros(0, np.uint64)


def _hexadecimal(text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What eight hexadecimal digits each come to, and bits where one is none: all eight of a number at once.

    A letter has the bit 0x40 and counts from 0x60 on, a digit from 0x30 on.
    """
    letter = text >> np.uint64(6) & np.uint64(0x0101010101010101)
    value = text & np.uint64(0x0F0F0F0F0F0F0F0F)
    wrong = text & np.uint64(0xF0F0F0F0F0F0F0F0) ^ np.uint64(0x3030303030303030) + letter * np.uint64(0x30)
    wrong |= value + np.uint64(0x0606060606060606) + letter * np.uint64(3) & np.uint64(
        0x1010101010101010
    )  # no digit above 9, no letter above f
    wrong |= ~(value + np.uint64(0x1010101010101010) - letter) & np.uint64(0x1010101010101010)  # what lies before the a is none either
    value += letter * np.uint64(9)
    value = (value << np.uint64(4) | value >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    value = (value << np.uint64(8) | value >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    value = (value << np.uint64(16) | value >> np.uint64(32)) & _LOW
    return value.astype(np.int64), wrong
