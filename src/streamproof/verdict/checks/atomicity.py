"""Atomic micro-batches: which of them a start of the job made visible in part.

A micro-batch is identified by its number and by the ranges of source offsets that ``progress.jsonl`` gives for it. A batch that was never
reported (its driver died first) lies between the batch before it and the batch after it. The copies that one start of the job wrote for one
batch are a *write set* of that batch. A start that fails before its decision leaves no write set. A start that decided leaves a complete
one. A later start adds its own:

    TORN   a visible write set that lacks a record which the broker ACKED at an offset of the batch, unless a copy of that record does not
           name its batch

Another write set may hold the missing record. That does not help: in between, a reader saw a part of the batch. Three things cannot be
judged: copies that do not name the start and batch that wrote them, batches whose range is unknown, and ACKED records whose offset is
unknown. Where atomic is promised, each of them makes the run INCONCLUSIVE (``streamproof.verdict.checks.unjudged``). While a start carries
out its decision, a reader may see a part of a batch for a moment (``streamproof.run.observer`` measures it); this check is about what
remains.

A pure function of the matched histories and the micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamproof.evidence.histories import Sent
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.matching import Finding, Matching

_OFFSET_BITS = 44
Range = tuple[Mapping[str, int], Mapping[str, int]]


def ranges(progress: Sequence[dict[str, Any]]) -> dict[int, Range]:
    """From where to where each micro-batch read, by source partition."""
    batch_ranges: dict[int, Range] = {line["batch"]: (line["from"] or {}, line["until"]) for line in progress}
    between = {number + 1 for number in batch_ranges if number + 1 not in batch_ranges and number + 2 in batch_ranges}
    return batch_ranges | {number: (batch_ranges[number - 1][1], batch_ranges[number + 1][0]) for number in between}


def torn(matched: Matching, progress: Sequence[dict[str, Any]]) -> list[Finding]:
    """The write sets that lack a record of their batch."""
    batch_ranges, source = ranges(progress), _Source(matched.sent)
    says = (matched.delivered.batch[matched.rows] >= 0) & (matched.delivered.start[matched.rows] >= 0)
    nameless = matched.send[matched.was_sent & ~says]  # a copy that does not name its batch may be the one that is missing elsewhere
    findings = []
    for (start, batch), rows, held in _write_sets(matched):
        if batch not in batch_ranges:
            continue
        due = source.read(batch_ranges[batch])
        missing = due[~np.isin(due, held) & ~np.isin(due, nameless)]
        if len(missing):
            at = tuple(int(row) for row in rows)
            findings.append(
                Finding(Anomaly.TORN, None, None, int(np.count_nonzero(np.diff(np.sort(held)))) + 1, int(missing.min()), at, start, batch)
            )
    return findings


def _write_sets(matched: Matching) -> Iterator[tuple[tuple[int, int], np.ndarray, np.ndarray]]:
    """Each write set as (start, batch), with its copies' rows and the rows of their sends."""
    delivered = matched.delivered
    has_batch = matched.was_sent & (delivered.batch[matched.rows] >= 0) & (delivered.start[matched.rows] >= 0)
    rows, send = matched.rows[has_batch], matched.send[has_batch]
    order = np.lexsort((delivered.batch[rows], delivered.start[rows]))
    rows, send = rows[order], send[order]
    named = np.stack([delivered.start[rows], delivered.batch[rows]])
    borders = np.flatnonzero((named[:, 1:] != named[:, :-1]).any(axis=0)) + 1
    for written, held in zip(np.split(rows, borders), np.split(send, borders), strict=True):
        if len(written):
            yield (int(delivered.start[written[0]]), int(delivered.batch[written[0]])), written, held


class _Source:
    """The ACKED records in the order of the source, to look up what lies between two offsets."""

    def __init__(self, sent: Sent) -> None:
        rows = np.flatnonzero(sent.acked & (sent.offset >= 0))
        self._rows = rows[np.lexsort((sent.offset[rows], sent.partition[rows]))]
        self._place = sent.partition[self._rows] << _OFFSET_BITS | sent.offset[self._rows]

    def read(self, between: Range) -> np.ndarray:
        """The rows of what a batch read."""
        begins, ends = between
        pieces = [np.zeros(0, np.int64)]
        for name, end in ends.items():
            base = int(name) << _OFFSET_BITS
            low, high = np.searchsorted(self._place, [base | begins.get(name, 0), base | end])
            pieces.append(self._rows[low:high])
        return np.concatenate(pieces)
