"""Times that lie, and clocks that were set: what is damaged by them, what they leave legal, and what nobody can judge then."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from tests.mutation.damage import CAREFUL, covered, damage
from tests.mutation.evidence import ACKED, Evidence, milliseconds, stamp

HOURS_MS = 36_000_000
LIES_MS = (0, 1_357_000_000_000, 4_102_444_800_000)
"""1970, 2013 and 2100: years in which no run was."""
Commit = tuple[int, dict[str, int], int]
"""Which start reported it, the end of what it covers in each partition, and when."""


def unjudged(evidence: Evidence) -> int:
    """How many records cannot be compared with the commit of their offsets, by one loop over all of them."""
    copies = defaultdict(list)
    for record, at, start in zip(
        evidence.ids.tolist(), *(evidence.delivered[name].tolist() for name in ("delivered_at", "start")), strict=True
    ):
        copies[record].append((at, start))
    commits = [(line["start"], line["until"], milliseconds(line["committed_at"])) for line in evidence.progress]
    acked = evidence.sent["outcome"] == ACKED
    places = zip(evidence.sent_ids[acked].tolist(), *(evidence.sent[name][acked].tolist() for name in ("partition", "offset")), strict=True)
    return sum(_is_unjudged(evidence, copies[record], str(partition), offset, commits) for record, partition, offset in places)


def _is_unjudged(evidence: Evidence, copies: list[tuple[int, int]], partition: str, offset: int, commits: list[Commit]) -> bool:
    since, until = evidence.lived or (0, 1 << 62)
    known = sorted(copy for copy in copies if since - 1000 <= copy[0] <= until + 1000)
    if not copies or offset < 0:
        return False
    at, start = known[0] if known else (None, min(start for _, start in copies))
    covering = [committed for by, ends, committed in commits if by >= start and ends.get(partition, 0) > offset]
    if not covering:
        return False
    committed = min(covering)
    if at is None or (len(known) < len(copies) and at > committed):
        return True
    return any(low <= at <= high and low <= committed <= high for low, high in evidence.twice)


def _live(evidence: Evidence) -> None:
    """The journal and the drain say when the run was."""
    if evidence.lived is None:
        commits = [milliseconds(line["committed_at"]) for line in evidence.progress]
        times = [*evidence.delivered["delivered_at"].tolist(), *evidence.sent["sent_at"].tolist(), *commits]
        evidence.lived = (min(times) - 5000, max(times) + HOURS_MS)


def _lie(evidence: Evidence, rng: np.random.Generator, rows: np.ndarray) -> None:
    _live(evidence)
    evidence.set(evidence.delivered, "delivered_at", rows, int(rng.choice(LIES_MS)) + rng.integers(0, 86_400_000, len(rows)))


# --- damage -------------------------------------------------------------------------------------------------------------------------


@damage
def output_at_times_of_the_jobs_own(evidence: Evidence, rng: np.random.Generator) -> bool:
    """The job passes event times through: whether it committed ahead of its output cannot be seen, and so was not shown."""
    if evidence.guarantee not in CAREFUL or not len(_coverable(evidence, rng, 1)):
        return False
    _lie(evidence, rng, np.arange(len(evidence.ids)))
    return True


@damage
def a_record_at_a_time_of_the_jobs_own(evidence: Evidence, rng: np.random.Generator) -> bool:
    if evidence.guarantee not in CAREFUL or not len(records := _coverable(evidence, rng, 3)):
        return False
    _lie(evidence, rng, evidence.rows_of(int(record) for record in records))
    return True


@damage
def output_after_its_commit_among_times_that_lie(evidence: Evidence, rng: np.random.Generator) -> bool:
    """What is known well enough is judged all the same."""
    records = _coverable(evidence, rng, 10)
    if evidence.guarantee not in CAREFUL or len(records) < 2:
        return False
    half = len(records) // 2
    late = int(evidence.delivered["delivered_at"].max()) + 3_600_000
    _lie(evidence, rng, evidence.rows_of(int(record) for record in records[:half]))
    evidence.set(evidence.delivered, "delivered_at", evidence.rows_of(int(record) for record in records[half:]), late)
    evidence.must("OFFSET_AHEAD", *(int(record) for record in records[half:]))
    return True


@damage
def output_after_its_commit_while_the_clock_showed_the_time_twice(evidence: Evidence, rng: np.random.Generator) -> bool:
    """The clock was set back between a commit and its output: the output seems to come first."""
    if evidence.guarantee not in CAREFUL or not len(records := _coverable(evidence, rng, 1)):
        return False
    (row,) = evidence.rows_of([int(records[0])])
    at = int(evidence.delivered["delivered_at"][row])
    name, offset = str(evidence.sent["partition"][records[0]]), evidence.sent["offset"][records[0]]
    reports = [line["committed_at"] for line in evidence.progress if line["until"].get(name, 0) > offset]
    committed = min(map(milliseconds, reports))
    _step(evidence, min(at, committed) - 20, max(at, committed) + 20)
    return True


def _coverable(evidence: Evidence, rng: np.random.Generator, most: int) -> np.ndarray:
    """Some records whose offsets a start at least as late as theirs reported as passed over."""
    once = evidence.once()
    return covered(evidence, rng.choice(once, min(len(once), most), replace=False)) if len(once) else once


def _step(evidence: Evidence, since: int, until: int) -> None:
    evidence.steps.append(
        {"at": stamp(until), "event": "clock_stepped", "step_ms": since - until, "since": stamp(since), "until": stamp(until)}
    )


# --- what is legal ------------------------------------------------------------------------------------------------------------------


def event_times_of_any_year(evidence: Evidence, rng: np.random.Generator) -> None:
    """The job passes event times through, of all records or of some. Where the versions say when each was there, these do no harm."""
    if evidence.versions is not None and evidence.versions.late:
        return
    rows = np.flatnonzero(rng.random(len(evidence.ids)) < rng.choice([0.1, 1.0]))
    if len(rows):
        _lie(evidence, rng, rows)


def a_clock_that_was_set(evidence: Evidence, rng: np.random.Generator) -> None:
    """Whatever happens from some moment on carries another time; what the clock showed twice is in the journal."""
    if not len(evidence.ids) or not evidence.progress or (evidence.versions is not None and evidence.versions.late):
        return
    step = int(rng.choice([-430, -120, -30, 250, 4_000_000]))
    commits = [milliseconds(line["committed_at"]) for line in evidence.progress]
    moment = int(rng.integers(min(commits) - 100, max(commits) + 1))
    slack = int(rng.integers(0, 30))
    at = evidence.delivered["delivered_at"]
    evidence.delivered["delivered_at"] = np.where(at >= moment, at + step, at)
    for line, committed in zip(evidence.progress, commits, strict=True):
        line["committed_at"] = stamp(committed + step if committed >= moment else committed)
    _live(evidence)
    if step < 0:
        _step(evidence, moment + step - slack, moment + slack)
    else:
        evidence.steps.append(_forward(moment, step))


def _forward(moment: int, step: int) -> dict[str, Any]:
    return {"at": stamp(moment), "event": "clock_stepped", "step_ms": step, "since": stamp(moment), "until": stamp(moment + step)}


LEGAL = (event_times_of_any_year, a_clock_that_was_set)
