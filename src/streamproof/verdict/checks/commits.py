"""Commits of offsets and the output: which records were visible only after the job had committed an offset above their own.

``progress.jsonl`` says up to which source offsets the job had committed, and when it reported so. Output comes first in a job that must not
lose: whatever crashes between the commit and the output is LOST. A run in which nothing crashed just there shows it all the same:

    OFFSET_AHEAD   an ACKED record with delivered copies, the first of which was written (or became visible, where the sink has that
                   time) after the job had reported a micro-batch whose offsets reach beyond the record's

A record without a copy is LOST, not OFFSET_AHEAD. When one start reports a batch and a later start writes it again (the checkpoint was put
back), the batch is compared with the later start's own report: a row that was updated names the start that wrote it last.

The times come from the clock of the process that wrote the output (of a broker, of PostgreSQL) and from that of the job's driver, or of
the process that follows it. In the embedded testbed they are one clock; elsewhere the clocks must agree better than the time that a commit
takes. What the clock does not tell is not judged, and counted:

    unordered   a record that would have to be compared, and a copy of it has an unknown time, or both times were shown twice by a clock
                that was set back (``streamproof.evidence.clock``)

A record of which one copy was there in time is in order, whatever the times of its other copies. Of an output that keeps versions a copy is
there from the commit of the version since which each one has shown the record: a file that is written anew brings the rows of others.

A pure function of the matched histories, their times and the micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamproof.evidence.clock import NEVER, UNKNOWN, Clock
from streamproof.evidence.files import milliseconds
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.matching import Finding, Matching


@dataclass(frozen=True)
class Commits:
    """The records that were delivered after their commit, and how many could not be judged."""

    findings: tuple[Finding, ...]
    unordered: int


ShownSince = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Since when each version has shown records, in ms since the epoch, by their producers and sequences; UNKNOWN where nobody knows."""


def compare(
    matched: Matching,
    delivered_at: np.ndarray,
    progress: Sequence[dict[str, Any]],
    clock: Clock | None = None,
    shown_since: ShownSince | None = None,
) -> Commits:
    """Compare output and commits. ``delivered_at`` has the time of each delivered row, in ms since the epoch, or UNKNOWN.
    ``shown_since`` is asked about those alone whose copies came too late."""
    sent, delivered = matched.sent, matched.delivered
    rows, send = matched.rows[matched.was_sent], matched.send[matched.was_sent]
    untimed = np.zeros(len(sent), bool)
    untimed[send[delivered_at[rows] == UNKNOWN]] = True
    at = np.where(delivered_at == UNKNOWN, NEVER, delivered_at)
    order = np.lexsort((delivered.start[rows], at[rows], send))
    rows, send = rows[order], send[order]
    first = np.r_[True, send[1:] != send[:-1]] if len(send) else np.zeros(0, bool)
    rows, send = rows[first], send[first]
    judged = sent.acked[send] & (sent.offset[send] >= 0)
    rows, send = rows[judged], send[judged]
    committed = _committed(sent.partition[send], sent.offset[send], delivered.start[rows], progress)
    there = at[rows]
    if shown_since is not None and (late := np.flatnonzero(there > committed)).size:
        since = (clock or Clock()).believed(shown_since(sent.producer[send[late]], sent.sequence[send[late]]))
        there[late] = np.minimum(there[late], np.where(since == UNKNOWN, NEVER, since))
    late = there > committed
    unordered = late & untimed[send] | (clock or Clock()).unordered(there, committed)
    ahead = np.flatnonzero(late & ~unordered)
    findings = tuple(matched.finding(Anomaly.OFFSET_AHEAD, int(send[row]), 1, (int(rows[row]),)) for row in ahead)
    return Commits(findings, int(unordered.sum()))


def _committed(partition: np.ndarray, offset: np.ndarray, start: np.ndarray, progress: Sequence[dict[str, Any]]) -> np.ndarray:
    """When it was first reported that each of these was passed over, by its own start of the job or a later one."""
    committed_at = np.full(len(offset), NEVER)
    for own in np.unique(start):
        lines = [line for line in progress if own <= line["start"]]
        for number in {name for line in lines for name in line["until"]}:
            reports = sorted((line["until"][number], milliseconds(line["committed_at"])) for line in lines if number in line["until"])
            ends, times = (np.array(column, np.int64) for column in zip(*reports, strict=True))
            earliest = np.r_[np.minimum.accumulate(times[::-1])[::-1], NEVER]
            here = np.flatnonzero((start == own) & (partition == int(number)))
            committed_at[here] = earliest[np.searchsorted(ends, offset[here], "right")]
    return committed_at


PARTITION_BITS = 44


def passed(progress: Sequence[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """When it was first reported, by any start, that an offset was passed over: of a place, ``partition << PARTITION_BITS | offset``, the
    time at the first of the ascending ends that lies behind it."""
    reports = sorted((int(name), end, milliseconds(line["committed_at"])) for line in progress for name, end in line["until"].items())
    ends: list[int] = []
    times: list[int] = []
    earliest, above = NEVER, None
    for partition, end, at in reversed(reports):
        if partition != above:
            if above is not None:
                ends.append(above << PARTITION_BITS)  # what lies before a partition's first offset belongs to another
                times.append(NEVER)
            ends.append((partition + 1 << PARTITION_BITS) - 1)
            times.append(NEVER)
            earliest, above = NEVER, partition
        earliest = min(earliest, at)
        ends.append((partition << PARTITION_BITS) + end)
        times.append(earliest)
    if above is not None:
        ends.append(above << PARTITION_BITS)
        times.append(NEVER)
    return np.array(ends[::-1], np.int64), np.array([*times[::-1], NEVER], np.int64)
