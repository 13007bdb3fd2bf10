"""How often each record is to be delivered, where that is not once for all: ``expected.parquet``.

It has one column, ``count``. Row N is about the records of sequence N, whoever sent them. Without the file each record is due once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamproof.evidence.columns import integers
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.histories import write_table

EXPECTED = pa.schema([("count", pa.int32())])


@dataclass(frozen=True)
class Expected:
    """``counts`` by sequence, None where each record is due once."""

    counts: np.ndarray | None = None

    @classmethod
    def of(cls, folder: RunFolder) -> Self:
        """What the run expects. Raises EvidenceError when the file is damaged."""
        path = folder.expected
        if not path.exists():
            return cls()
        try:
            column = pq.read_table(path, schema=EXPECTED)["count"]
        except (OSError, pa.ArrowException, KeyError) as error:
            raise EvidenceError(f"{path} cannot be read as evidence: {error}") from error
        if column.null_count or (len(column) and int(integers(column).min()) < 0):
            raise EvidenceError(f"{path} is damaged: it holds a record that is due less than never")
        return cls(integers(column))

    def of_sequences(self, sequences: np.ndarray) -> np.ndarray:
        """How often the record of each sequence is due. Raises EvidenceError for one that the file does not reach."""
        if self.counts is None:
            return np.ones(len(sequences), np.int64)
        if len(sequences) and int(sequences.max()) >= len(self.counts):
            raise EvidenceError(f"expected.parquet says nothing of record {int(sequences.max())}: it has {len(self.counts)} rows")
        return np.asarray(self.counts[sequences])


ONCE = Expected()


def write(folder: RunFolder, counts: np.ndarray) -> None:
    write_table(folder.expected, pa.table({"count": pa.array(counts, pa.int32())}, schema=EXPECTED))
