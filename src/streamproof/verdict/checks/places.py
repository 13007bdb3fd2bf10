"""Places: the partition and the offset of each record of a history, read in pieces, so that memory does not grow with the history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamproof.evidence.columns import integers
from streamproof.evidence.folder import EvidenceError
from streamproof.evidence.histories import files

PIECE = 1 << 17
SHIFT = 44
LOW = (1 << SHIFT) - 1
Places = tuple[np.ndarray, np.ndarray]


def pieces(directory: Path, columns: list[str]) -> Iterator[pa.Table]:
    """Some rows of the history after the other. Raises EvidenceError where a file cannot be read."""
    for path in files(directory):
        try:
            with pq.ParquetFile(path, read_dictionary=["outcome"] if "outcome" in columns else None) as parquet:
                for batch in parquet.iter_batches(PIECE, columns=columns):
                    yield pa.Table.from_batches([batch])
        except (OSError, pa.ArrowException, KeyError) as error:
            raise EvidenceError(f"{path} cannot be read as evidence: {error}") from error


def places_of(directory: Path) -> Iterator[Places]:
    """Partitions and offsets, piece by piece. Raises EvidenceError as :func:`pieces` does."""
    for table in pieces(directory, ["partition", "offset"]):
        yield integers(table["partition"]), integers(table["offset"])


def packed(partition: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Each place as one number, in the order of partition and offset."""
    return np.asarray(partition << SHIFT | offset)
