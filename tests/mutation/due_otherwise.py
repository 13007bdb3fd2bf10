"""Records that are due more or less often than once, as a run's ``expected.parquet`` says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow.parquet as pq

from streamproof.evidence import manifest
from streamproof.evidence.folder import RunFolder
from tests.mutation.damage import Damage
from tests.mutation.evidence import ACKED, INDETERMINATE, REJECTED, Evidence

DAMAGES: dict[str, Damage] = {}
LIKELY = (0, 0, 1, 1, 1, 2, 3)
MOST = 100_000


def _counted(function: Callable[[Evidence, np.random.Generator], bool]) -> Callable[[Evidence, np.random.Generator], bool]:
    def damage(evidence: Evidence, rng: np.random.Generator) -> bool:
        return as_often_as_due(evidence, rng) and function(evidence, rng)

    DAMAGES[function.__name__] = damage
    return function


def as_often_as_due(evidence: Evidence, rng: np.random.Generator) -> bool:
    """Each record becomes due some times, and is there as often; False where too little would be left."""
    if evidence.truth or evidence.reread is not None or evidence.expected is not None:
        return False
    last = max([int(evidence.sent["sequence"].max(initial=-1)), *(first + count - 1 for _, first, count in evidence.intents)])
    if last > MOST:
        return False
    due = rng.choice(LIKELY, last + 1)
    known = np.flatnonzero((evidence.delivered["sequence"] >= 0) & (evidence.delivered["sequence"] <= last))
    times = due[evidence.delivered["sequence"][known]]
    if len(known) < len(evidence.ids) or not (times > 0).any():
        return False
    for again in range(1, max(LIKELY)):
        evidence.add(known[times > again])
    kept = np.ones(len(evidence.ids), bool)
    kept[known[times == 0]] = False
    evidence.keep(kept)
    evidence.promises, evidence.expected = frozenset(), due
    return True


def _due(evidence: Evidence, least: int, most: int) -> np.ndarray:
    """The ACKED records that are due so often."""
    assert evidence.expected is not None
    due = evidence.expected[evidence.sent["sequence"]]
    return np.flatnonzero((evidence.sent["outcome"] == ACKED) & (due >= least) & (due <= most))


def _take(evidence: Evidence, rows: np.ndarray) -> None:
    kept = np.ones(len(evidence.ids), bool)
    kept[rows] = False
    evidence.keep(kept)


def _one(rng: np.random.Generator, records: np.ndarray) -> int | None:
    return int(rng.choice(records)) if len(records) else None


@_counted
def one_of_several_copies_gone(evidence: Evidence, rng: np.random.Generator) -> bool:
    record = _one(rng, _due(evidence, 2, 9))
    if record is None:
        return False
    _take(evidence, evidence.rows_of([record])[-1:])
    evidence.must("LOST", record)
    return True


@_counted
def all_of_several_copies_gone(evidence: Evidence, rng: np.random.Generator) -> bool:
    record = _one(rng, _due(evidence, 2, 9))
    if record is None:
        return False
    _take(evidence, evidence.rows_of([record]))
    evidence.must("LOST", record)
    return True


@_counted
def one_copy_more_than_due(evidence: Evidence, rng: np.random.Generator) -> bool:
    record = _one(rng, _due(evidence, 1, 9))
    if record is None:
        return False
    evidence.add(evidence.rows_of([record])[:1])
    evidence.must("DUPLICATED", record)
    return True


@_counted
def a_record_that_was_to_be_left_out(evidence: Evidence, rng: np.random.Generator) -> bool:
    record = _one(rng, _due(evidence, 0, 0))
    if record is None:
        return False
    evidence.deliver(*evidence.id_of(record), crc=int(evidence.sent["crc"][record]))
    if rng.random() < 0.5:
        evidence.add(evidence.rows_of([record]))
    evidence.set(evidence.delivered, "delivered_at", evidence.rows_of([record]), int(evidence.delivered["delivered_at"].min()))
    evidence.must("PHANTOM", record)
    return True


@_counted
def some_copies_of_an_indeterminate_one(evidence: Evidence, rng: np.random.Generator) -> bool:
    """It is in the topic, for a copy is here; then all of them must be."""
    record = _one(rng, _due(evidence, 2, 9))
    if record is None:
        return False
    _undecide(evidence, record, INDETERMINATE)
    _take(evidence, evidence.rows_of([record])[-1:])
    evidence.must("LOST", record)
    return True


@_counted
def copies_of_a_refused_one(evidence: Evidence, rng: np.random.Generator) -> bool:
    record = _one(rng, _due(evidence, 1, 9))
    if record is None:
        return False
    _undecide(evidence, record, REJECTED)
    evidence.must("PHANTOM", record)
    return True


def _undecide(evidence: Evidence, record: int, outcome: str) -> None:
    evidence.set(evidence.sent, "outcome", record, outcome)
    evidence.set(evidence.sent, "offset", record, -1)


@_counted
def expectations_that_end_too_early(evidence: Evidence, rng: np.random.Generator) -> bool:
    def spoil(folder: RunFolder) -> None:
        table = pq.read_table(folder.expected)
        pq.write_table(table.slice(0, int(evidence.sent["sequence"].max())), folder.expected)
        manifest.write(folder)

    evidence.spoil, evidence.spoilt = spoil, "expected.parquet says nothing of"
    return True
