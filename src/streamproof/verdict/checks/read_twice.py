"""How much of the output was read twice, and whether the second reader's own count agrees with what it left.

    ``delivered_again/ranges.json`` counts what ``delivered_again/`` holds, and no record lies outside of the stretches that it names

What the two readers say of each record is compared by the expectation suites.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamproof.evidence.columns import integers
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.histories import files
from streamproof.evidence.second_reading import SecondReading, Stretch, path

_SHIFT = 44


def check_second_reading(folder: RunFolder) -> SecondReading | None:
    """The second reading; None when the output was read once. Raises EvidenceError where it does not add up."""
    reading = SecondReading.read(folder)
    if reading is None:
        return None
    partition, offset = _places(folder)
    if len(partition) != reading.records:
        raise EvidenceError(f"{path(folder)} says {reading.records} records, {folder.delivered_again} holds {len(partition)}")
    within = _within(partition, offset, reading.stretches)
    if not within.all():
        at = int(np.argmin(within))
        raise EvidenceError(
            f"{folder.delivered_again} has an offset {offset[at]} of partition {partition[at]}, {path(folder)} names no such"
        )
    return reading


def _within(partition: np.ndarray, offset: np.ndarray, stretches: Sequence[Stretch]) -> np.ndarray:
    """Whether each place lies in one of the stretches. No two of them overlap, so it can only be the last that begins before it."""
    ordered = np.array([[one.partition, one.since, one.until] for one in sorted(stretches)], np.int64).reshape(-1, 3)
    begins = ordered[:, 0] << _SHIFT | ordered[:, 1]
    at = np.searchsorted(begins, partition << _SHIFT | offset, "right") - 1
    mine = ordered[at] if len(ordered) else np.full((len(partition), 3), -1)
    return np.asarray((at >= 0) & (mine[:, 0] == partition) & (offset < mine[:, 2]))


def _places(folder: RunFolder) -> tuple[np.ndarray, np.ndarray]:
    """Partition and offset of what was read again: at most a million records."""
    columns = ["partition", "offset"]
    try:
        tables = [pq.read_table(each, columns=columns) for each in files(folder.delivered_again)]
    except (OSError, pa.ArrowException, KeyError) as error:
        raise EvidenceError(f"{folder.delivered_again} cannot be read as evidence: {error}") from error
    places = [(integers(table["partition"]), integers(table["offset"])) for table in tables if len(table)]
    partitions, offsets = zip(*places, strict=True) if places else ((), ())
    return (np.concatenate(partitions), np.concatenate(offsets)) if places else (np.zeros(0, np.int64), np.zeros(0, np.int64))
