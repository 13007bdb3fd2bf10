"""What the delivered records say: their keys and values as they were read, ``payloads/*.parquet``.

Most verdicts need the identities of records only. Results of a stateful job have none, and a user's own expectations are about columns: of
such a run the drain keeps the values too, in the order in which they lie in the output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamproof.evidence.folder import SCHEMA_VERSION, EvidenceError, RunFolder
from streamproof.evidence.histories import Delivered, files, write_table

PAYLOADS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("batch", pa.int64()),
        ("attempt", pa.int32()),
        ("start", pa.int32()),
        ("delivered_at", pa.timestamp("ms", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ],
    metadata={b"schema_version": str(SCHEMA_VERSION).encode()},
)
WITH_HEADER = PAYLOADS.append(pa.field("header", pa.binary()))
"""With the header that holds a record's identity, where a job keeps it in one."""


@dataclass(frozen=True)
class Payloads:
    """The output as it was read: ``keys`` and ``values`` as they were written, ``delivered`` without identities, ``delivered_at`` in ms."""

    delivered: Delivered
    delivered_at: np.ndarray
    keys: list[bytes | None]
    values: list[bytes | None]


def write_payloads(folder: Path, number: int, columns: Mapping[str, Any]) -> None:
    schema = WITH_HEADER if "header" in columns else PAYLOADS
    write_table(folder / f"{number:05d}.parquet", pa.table(dict(columns), schema=schema))


def read_payloads(folder: RunFolder) -> Payloads:
    """Raises EvidenceError when the drain of this run kept none, or a file cannot be read."""
    if not folder.payloads.is_dir():
        raise EvidenceError(f"{folder.payloads} is missing: the drain of this run kept no values")
    tables = []
    for path in files(folder.payloads):
        try:
            tables.append(pq.read_table(path, columns=PAYLOADS.names).cast(PAYLOADS))
        except (OSError, pa.ArrowException, KeyError) as error:
            raise EvidenceError(f"{path} cannot be read as evidence: {error}") from error
    table = pa.concat_tables(tables) if tables else PAYLOADS.empty_table()
    column = {name: _ints(table[name]) for name in ("partition", "offset", "batch", "attempt", "start", "delivered_at")}
    nobody = np.full(table.num_rows, -1, np.int64)
    at = column.pop("delivered_at")
    delivered = Delivered(producer=nobody, sequence=nobody, crc=nobody, identified=np.zeros(table.num_rows, bool), **column)
    return Payloads(delivered, at, table["key"].to_pylist(), table["value"].to_pylist())


def _ints(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.cast(pa.int64()).fill_null(-1).to_numpy(), dtype=np.int64)
