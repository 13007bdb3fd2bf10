"""Commits of offsets and the output: which records were visible only after the job had committed an offset above their own.

``progress.jsonl`` says up to which source offsets the job had committed, and when it reported so. Output comes first in a job that must not
lose: whatever crashes between the commit and the output is LOST. A run in which nothing crashed just there shows it all the same:

    OFFSET_AHEAD   an ACKED record with delivered copies, the first of which was written (or became visible, where the sink has that
                   time) after the job had reported a micro-batch whose offsets reach beyond the record's

A record without a copy is LOST, not OFFSET_AHEAD. When one start reports a batch and a later start writes it again (the checkpoint was put
back), the batch is compared with the later start's own report: upserted rows carry the time of the last write.

The two times come from the clock of the process that wrote the output and from the driver's clock. In the embedded testbed they are one
clock; elsewhere the clocks must agree better than the time that a commit takes.

A pure function of the matched histories, their times and the micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.matching import Finding, Matching
from streamproof.verdict.timing.recovery import milliseconds

_NEVER = np.iinfo(np.int64).max


def offset_ahead(matched: Matching, delivered_at: np.ndarray, progress: Sequence[dict[str, Any]]) -> list[Finding]:
    """The records that were delivered after their commit. ``delivered_at`` has the time of each delivered row, in ms since the epoch."""
    sent, delivered = matched.sent, matched.delivered
    rows, send = matched.rows[matched.was_sent], matched.send[matched.was_sent]
    order = np.lexsort((delivered.start[rows], delivered_at[rows], send))
    rows, send = rows[order], send[order]
    first = np.r_[True, send[1:] != send[:-1]] if len(send) else np.zeros(0, bool)
    rows, send = rows[first], send[first]
    judged = sent.acked[send] & (sent.offset[send] >= 0)
    rows, send = rows[judged], send[judged]
    late = np.flatnonzero(delivered_at[rows] > _committed(sent.partition[send], sent.offset[send], delivered.start[rows], progress))
    return [matched.finding(Anomaly.OFFSET_AHEAD, int(send[at]), 1, (int(rows[at]),)) for at in late]


def _committed(partition: np.ndarray, offset: np.ndarray, start: np.ndarray, progress: Sequence[dict[str, Any]]) -> np.ndarray:
    """When it was first reported that each of these was passed over, by its own start of the job or a later one."""
    committed_at = np.full(len(offset), _NEVER)
    for own in np.unique(start):
        lines = [line for line in progress if own <= line["start"]]
        for number in {name for line in lines for name in line["until"]}:
            reports = sorted((line["until"][number], milliseconds(line["committed_at"])) for line in lines if number in line["until"])
            ends, times = (np.array(column, np.int64) for column in zip(*reports, strict=True))
            earliest = np.r_[np.minimum.accumulate(times[::-1])[::-1], _NEVER]
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
    earliest, above = int(_NEVER), None
    for partition, end, at in reversed(reports):
        if partition != above:
            if above is not None:
                ends.append(above << PARTITION_BITS)  # what lies before a partition's first offset belongs to another
                times.append(int(_NEVER))
            ends.append((partition + 1 << PARTITION_BITS) - 1)
            times.append(int(_NEVER))
            earliest, above = int(_NEVER), partition
        earliest = min(earliest, at)
        ends.append((partition << PARTITION_BITS) + end)
        times.append(earliest)
    if above is not None:
        ends.append(above << PARTITION_BITS)
        times.append(int(_NEVER))
    return np.array(ends[::-1], np.int64), np.array([*times[::-1], int(_NEVER)], np.int64)
