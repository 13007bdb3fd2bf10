"""The micro-batches of a stateful job: which of them ran, what each read, and what Spark said of its watermark.

``batches.jsonl`` has a line for each micro-batch that a start of the job carried out, also for those without records, by which Spark lets a
watermark take effect:

    batch, start       its number, and the start of the job that reported it
    until              up to which source offsets it read, by partition
    watermark_ms       the watermark it ran with, as Spark reports it; null when unknown
    dropped            the rows that its operators dropped as late (``numRowsDroppedByWatermark``); null when unknown
    committed_at       when it was committed

A driver that dies between committing a batch and reporting it leaves no line; its next start writes the line from Spark's checkpoint, with
``dropped`` null. A batch that is carried out again by a later start has the later's line. The batches are taken in the order in which they
ran: what one read begins where the one before it ended, whoever ran it. A start that begins anew with an empty checkpoint is so held to
what the job would have delivered had it kept its state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamproof.evidence.folder import EvidenceError, read_json_lines

_NEEDED = ("batch", "start", "until", "watermark_ms", "dropped", "committed_at")


@dataclass(frozen=True)
class Batch:
    """One micro-batch that ran."""

    number: int
    start: int
    until: dict[str, int]
    watermark_ms: int | None
    dropped: int | None
    committed_at: str


def read_batches(path: Path) -> tuple[Batch, ...]:
    """The batches of ``batches.jsonl`` in the order in which they ran. Raises EvidenceError when the file is damaged."""
    lines = []
    for line in read_json_lines(path):
        if missing := [name for name in _NEEDED if name not in line]:
            raise EvidenceError(f"{path} is damaged: {', '.join(missing)} missing in {str(line)[:80]}")
        lines.append(Batch(*(line[name] for name in _NEEDED)))
    return in_order(lines)


def in_order(lines: Sequence[Batch]) -> tuple[Batch, ...]:
    """One of each: a batch that was carried out again, with the same number and the same input, is the later one in the earlier's place."""
    latest: dict[tuple[int, tuple[tuple[str, int], ...]], Batch] = {}
    for line in lines:
        latest[line.number, tuple(sorted(line.until.items()))] = line
    return tuple(latest.values())


def reading(batches: Sequence[Batch], partition: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Which batch, by its place in ``batches``, read the record at each offset. What none read counts as read by the last."""
    place = np.full(len(offset), max(len(batches) - 1, 0), np.int64)
    for number in np.unique(partition):
        here = np.flatnonzero(partition == number)
        ends = np.maximum.accumulate(np.array([batch.until.get(str(number), 0) for batch in batches], np.int64))
        place[here] = np.minimum(np.searchsorted(ends, offset[here], "right"), place[here])
    return place
