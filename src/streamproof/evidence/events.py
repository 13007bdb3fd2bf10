"""What a stateful job was given: the columns that it aggregates or joins, of every record that it may have read.

A run of a stateful pipeline writes ``events.parquet`` before it sends: what the record with each sequence says, whoever sends it. With what
became of each send, and with the micro-batches, that is the input of a recomputation:

    ACKED           read by the batch that its offset lies in
    INDETERMINATE   read by any of the batches, or by none: what is allowed is what either way allows
    REJECTED        not there
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamproof.evidence.batches import Batch, reading
from streamproof.evidence.folder import SCHEMA_VERSION, EvidenceError
from streamproof.evidence.histories import Sent

EVENTS = pa.schema(
    [("sequence", pa.int64()), ("stream", pa.int32()), ("at", pa.int64()), ("key", pa.string()), ("value", pa.int64())],
    metadata={b"schema_version": str(SCHEMA_VERSION).encode()},
)


@dataclass(frozen=True)
class Inputs:
    """The input, columns of equal length. ``at`` is the event's time in ms, ``stream`` which of the inputs of a join it belongs to, ``key``
    a number for one of ``keys``, ``batch`` the place of the batch that read it, -1 where nobody knows whether one did."""

    producer: np.ndarray
    sequence: np.ndarray
    stream: np.ndarray
    at: np.ndarray
    key: np.ndarray
    value: np.ndarray
    batch: np.ndarray
    keys: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.at)

    @property
    def certain(self) -> np.ndarray:
        return np.asarray(self.batch >= 0)


def read_inputs(path: Path, sent: Sent, batches: Sequence[Batch]) -> Inputs:
    """Join the events with what became of their sends. Raises EvidenceError when ``events.parquet`` is missing or too short."""
    try:
        table = pq.read_table(path, columns=EVENTS.names).cast(EVENTS).combine_chunks()
    except (OSError, pa.ArrowException, KeyError) as error:
        raise EvidenceError(f"{path} cannot be read as evidence: {error}") from error
    if not np.array_equal(table["sequence"].to_numpy(), np.arange(table.num_rows)):
        raise EvidenceError(f"{path} is damaged: its rows are not those of the sequences from 0 on")
    here = np.flatnonzero(~sent.rejected)
    sequence = sent.sequence[here]
    if len(sequence) and int(sequence.max()) >= table.num_rows:
        raise EvidenceError(f"{path} is damaged: it has {table.num_rows} events, and event {int(sequence.max())} was sent")
    keys = table["key"].combine_chunks().dictionary_encode()
    columns = {name: np.asarray(table[name].to_numpy(), np.int64)[sequence] for name in ("stream", "at", "value")}
    place = np.where(sent.acked[here], reading(batches, sent.partition[here], sent.offset[here]), -1)
    return Inputs(
        producer=sent.producer[here],
        sequence=sequence,
        key=np.asarray(keys.indices.to_numpy(), np.int64)[sequence],
        batch=place,
        keys=tuple(keys.dictionary.to_pylist()),
        **columns,
    )
