"""How much of the output was read twice, and whether the second reader's own count agrees with what it left.

    ``delivered_again/ranges.json`` counts what ``delivered_again/`` holds, and no record lies outside of the stretches that it names

What the two readers say of each record is compared by the expectation suites.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.second_reading import SecondReading, Stretch, path
from streamproof.verdict.checks.places import packed, places_of


def check_second_reading(folder: RunFolder) -> SecondReading | None:
    """The second reading; None when the output was read once. Raises EvidenceError where it does not add up."""
    reading = SecondReading.read(folder)
    if reading is None:
        return None
    records, outside = 0, None
    for partition, offset in places_of(folder.delivered_again):
        records += len(partition)
        strange = np.flatnonzero(~_within(partition, offset, reading.stretches))
        if outside is None and len(strange):
            outside = partition[strange[0]], offset[strange[0]]
    if records != reading.records:
        raise EvidenceError(f"{path(folder)} says {reading.records} records, {folder.delivered_again} holds {records}")
    if outside is not None:
        raise EvidenceError(f"{folder.delivered_again} has an offset {outside[1]} of partition {outside[0]}, {path(folder)} names no such")
    return reading


def _within(partition: np.ndarray, offset: np.ndarray, stretches: Sequence[Stretch]) -> np.ndarray:
    """Whether each place lies in one of the stretches. No two of them overlap, so it can only be the last that begins before it."""
    ordered = np.array([[one.partition, one.since, one.until] for one in sorted(stretches)], np.int64).reshape(-1, 3)
    at = np.searchsorted(packed(ordered[:, 0], ordered[:, 1]), packed(partition, offset), "right") - 1
    mine = ordered[at] if len(ordered) else np.full((len(partition), 3), -1)
    return np.asarray((at >= 0) & (mine[:, 0] == partition) & (offset < mine[:, 2]))
