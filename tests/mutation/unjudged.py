"""Evidence with gaps that leave a promise unjudged: no record is wrong, and no judge may say that the promise was kept."""

from __future__ import annotations

import numpy as np

from tests.mutation.damage import damage
from tests.mutation.evidence import ACKED, Evidence


@damage
def copies_that_name_no_batch(evidence: Evidence, rng: np.random.Generator) -> bool:
    """The job set no header."""
    rows = np.flatnonzero(evidence.delivered["batch"] >= 0)
    if "atomic" not in evidence.promises or not len(rows):
        return False
    chosen = rng.choice(rows, int(rng.integers(1, len(rows) + 1)), replace=False)
    for column in ("start", "batch", "attempt"):
        evidence.set(evidence.delivered, column, chosen, -1)
    evidence.unjudged = True
    return True


@damage
def two_adjacent_batches_without_a_report(evidence: Evidence, rng: np.random.Generator) -> bool:
    """Nothing says where one ends and the other begins."""
    if "atomic" not in evidence.promises or len(evidence.progress) < 6:
        return False
    at = int(rng.integers(2, len(evidence.progress) - 2))
    gone = {line["batch"] for line in evidence.progress[at : at + 2]}
    if len({line["batch"] for line in evidence.progress}) < len(evidence.progress) or not gone & set(evidence.delivered["batch"].tolist()):
        return False
    del evidence.progress[at : at + 2]
    evidence.unjudged = True
    return True


@damage
def an_acknowledged_record_without_its_offset(evidence: Evidence, rng: np.random.Generator) -> bool:
    """The broker acknowledged a repeated request without saying where the record lies: often the last one of a partition."""
    acked = np.flatnonzero((evidence.sent["outcome"] == ACKED) & (evidence.sent["offset"] >= 0))
    if not len(acked):
        return False
    mine = acked[evidence.sent["partition"][acked] == evidence.sent["partition"][rng.choice(acked)]]
    last = mine[np.argmax(evidence.sent["offset"][mine])]
    record = int(last if rng.random() < 0.5 else rng.choice(acked))
    evidence.set(evidence.sent, "offset", record, -1)
    keyed = evidence.sent["key"][record] >= 0
    evidence.unjudged = "atomic" in evidence.promises or ("ordered" in evidence.promises and bool(keyed))
    return True
