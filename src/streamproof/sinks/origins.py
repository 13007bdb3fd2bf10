"""The origins of many records at once: what :func:`streamproof.sinks.origin.decode` says of each, in columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamproof.evidence.compiled import BYTES, INTEGERS, compiled

_MOST = (9, 18, 9)  # digits
_DOT, _ZERO, _NINE = b".09"


def decode(data: np.ndarray, at: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start, batch and attempt from the headers ``data[at : at + size]``; ``size`` -1: there is none. -1 where nothing is said."""
    start, batch, attempt = _decode(data, at, size)
    return start, batch, attempt


@compiled("Tuple((int32[::1], int64[::1], int32[::1]))", BYTES, INTEGERS, INTEGERS)
def _decode(data: Any, at: Any, size: Any) -> Any:
    rows = len(at)
    start, batch, attempt = np.full(rows, -1, np.int32), np.full(rows, -1, np.int64), np.full(rows, -1, np.int32)
    for row in range(rows):
        part, digits, number, first, second = 0, 0, 0, 0, 0
        for place in range(at[row], at[row] + size[row]):
            byte = data[place]
            if _ZERO <= byte <= _NINE and digits < _MOST[part]:
                digits, number = digits + 1, 10 * number + byte - _ZERO
            elif byte == _DOT and digits and part < 2:
                first, second = second, number
                part, digits, number = part + 1, 0, 0
            else:
                digits = 0
                break
        if part == 2 and digits:
            start[row], batch[row], attempt[row] = first, second, number
    return start, batch, attempt
