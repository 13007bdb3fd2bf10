"""Arrow's columns as numpy's arrays and back, where both keep numbers alike: the same memory, and not by way of pandas, which takes longer
to import than most checks take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def integers(column: pa.ChunkedArray) -> np.ndarray:
    """The column as int64, with -1 for null."""
    return numbers(column, pa.int64(), -1)


def numbers(column: pa.ChunkedArray, kind: pa.DataType, missing: int) -> np.ndarray:
    """The column as ``kind``, with ``missing`` for null."""
    whole = column if column.type.equals(kind) else column.cast(kind)
    whole = (whole.fill_null(missing) if whole.null_count else whole).combine_chunks()
    if not len(whole):
        return np.zeros(0, _DTYPES[kind])
    return np.asarray(np.frombuffer(whole.buffers()[1], _DTYPES[kind])[whole.offset : whole.offset + len(whole)])


def flags(column: pa.ChunkedArray) -> np.ndarray:
    """A column of booleans; null is False."""
    return numbers(column, pa.uint8(), 0).astype(bool)


def array(values: np.ndarray, missing: np.ndarray | None = None) -> pa.Array:
    """The array as Arrow's, null where ``missing`` says so."""
    values = np.ascontiguousarray(values)
    valid = None if missing is None or not missing.any() else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(_KINDS[values.dtype], len(values), [valid, pa.py_buffer(values)])


_DTYPES: dict[Any, np.dtype[Any]] = {pa.int64(): np.dtype(np.int64), pa.uint32(): np.dtype(np.uint32), pa.uint8(): np.dtype(np.uint8)}
_KINDS = {np.dtype(np.int32): pa.int32(), np.dtype(np.int64): pa.int64(), np.dtype(np.uint32): pa.uint32()}
