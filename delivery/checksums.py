"""The crc32 of many pieces of one buffer at once, as ``zlib.crc32`` has them one by one.

A call for each piece costs some 0.4 µs and holds the interpreter's lock; this walks through all of them side by side, four bytes a step,
and lets other threads work meanwhile. crc32 is linear: leading zeros change nothing of a register that begins at zero. So the pieces are
aligned at their *ends*, whatever their lengths, with zeros before them; what the register's true beginning (all ones) adds depends on a
piece's length alone and comes from a table.
"""

from __future__ import annotations

import functools
import zlib

import numpy as np

PAD = 4096
"""How many bytes of the buffer must lie before the first piece: they are read, and count for nothing."""
_ROWS = 8192  # side by side: so many words stay in the cache


def crc32s(data: np.ndarray, at: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The crc32 of each ``data[at : at + size]``; ``data`` is of bytes, no ``at`` is below ``PAD``."""
    found = np.zeros(len(at), np.uint32)
    order = np.argsort(size, kind="stable") if len(size) and size.min() != size.max() else np.arange(len(size))
    short = order[: np.searchsorted(size[order], PAD, "right")]
    for begin in range(0, len(short), _ROWS):
        rows = short[begin : begin + _ROWS]
        found[rows] = _side_by_side(data, at[rows] + size[rows], size[rows])
    for row in order[len(short) :].tolist():
        found[row] = zlib.crc32(data[at[row] : at[row] + size[row]].data)
    return found


def _side_by_side(data: np.ndarray, end: np.ndarray, size: np.ndarray) -> np.ndarray:
    """``size`` ascends, and is at most ``PAD``."""
    low, high, initial = _tables()
    words = -(-int(size[-1]) // 4)
    windows = np.lib.stride_tricks.as_strided(data, (len(data) - 4 * words + 1, 4 * words), (1, 1), writeable=False)
    columns = np.ascontiguousarray(windows[end - 4 * words].view("<u4").T)
    register = np.zeros(len(end), np.uint32)
    whole = words - int(size[0]) // 4
    for number, word in enumerate(columns):
        if number < whole:
            word &= _MASKS[np.clip(size - 4 * (words - number - 1), 0, 4)]
        register ^= word
        register = low.take(register & 0xFFFF) ^ high.take(register >> 16)
    return np.asarray(register ^ initial[size] ^ np.uint32(0xFFFFFFFF))


_MASKS = np.array([0, 0xFF000000, 0xFFFF0000, 0xFFFFFF00, 0xFFFFFFFF], np.uint32)  # the last so many bytes of a little-endian word


@functools.cache
def _tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What four bytes make of a register, by its lower and by its upper half; and what a register of ones is after so many zeros."""
    one = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        one = np.where(one & 1, one >> 1 ^ np.uint32(0xEDB88320), one >> 1)
    after = [one]
    for _ in range(3):
        after.append(one[after[-1] & 0xFF] ^ after[-1] >> 8)
    half = np.arange(65536)
    low, high = after[3][half & 0xFF] ^ after[2][half >> 8], after[1][half & 0xFF] ^ after[0][half >> 8]
    ones = [0xFFFFFFFF]
    for _ in range(PAD):
        ones.append(int(one[ones[-1] & 0xFF]) ^ ones[-1] >> 8)
    return low, high, np.array(ones, np.uint32)
