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
_DIGITS = np.flatnonzero(np.frombuffer(_TEMPLATE, np.uint8) == ord("?"))
_NO_DIGIT, _NO_DIGITS = 0x80, np.uint64(0x8080808080808080)
_VALUE = np.full(256, _NO_DIGIT, np.uint8)
_VALUE[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)


def decode(data: np.ndarray, at: np.ndarray, size: np.ndarray) -> Identities:
    """The identities of the values ``data[at : at + size]``; a ``size`` below 0 is a null. ``data`` has ``BEFORE`` and ``BEHIND``."""
    windows = np.lib.stride_tricks.as_strided(data, (len(data) - 8 * _WORDS + 1, 8 * _WORDS), (1, 1), writeable=False)
    rows = windows[at]
    words = rows.view(np.uint64)
    found = size >= PREFIX_LENGTH
    for number in range(_WORDS):
        found &= words[:, number] & _LITERAL[number] == _EXPECTED[number]
    digits = _VALUE.take(rows.take(_DIGITS, axis=1))
    found &= np.bitwise_or.reduce(digits.view(np.uint64).T, axis=0) & _NO_DIGITS == 0
    numbers = (digits[:, ::2] << 4 | digits[:, 1::2]).view(">u8").astype(np.uint64)
    length = (numbers[:, 1] >> np.uint64(32)).astype(np.int64)
    found &= size - PREFIX_LENGTH >= length
    crc = np.zeros(len(at), np.uint32)
    crc[found] = crc32s(data, at[found] + PREFIX_LENGTH, length[found])
    return Identities(
        found,
        (numbers[:, 0] >> np.uint64(48)).astype(np.int32),
        (numbers[:, 0] & np.uint64((1 << 48) - 1)).astype(np.int64),
        crc,
        numbers[:, 1].astype(np.uint32),
    )
