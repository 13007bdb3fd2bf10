"""The watermark of a streaming job, recomputed from the micro-batches that really happened and the delay that was declared.

As Spark has it, for each stream with its delay:

    after each batch    of each stream the highest event time so far, less its delay; of several streams the lowest of these (a stream of
                        which nothing came yet counts as 0); the watermark never falls
    batch N runs with   what the batches before it left
    late in batch N     what the watermark of batch N-1 has passed: an event at or before it, a window that ends at or before it
    final in batch N    what the watermark of batch N has passed: it is emitted in append mode, and leaves the state

A new start of the job knows the watermark, from its checkpoint, but not the streams' highest times: they are gathered anew, so that the
watermark of a job with several streams may stand still for longer than without that start. What a batch drops as late and what it emits so
depends on the batches: they are evidence, not guessed.

With INDETERMINATE sends there are two watermarks: the *low* one, had none of them been read, and the *high* one, had each been read by the
first batch of every start. What the low one passes is late for certain, what the high one does not is in time for certain.

Checked against: Spark 4.1 (``WatermarkTracker``, ``PropagateWatermarkSimulator``), and runs of it: ``tests/integration/test_stateful.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from streamproof.evidence.batches import Batch
from streamproof.evidence.events import Inputs


def moment(at_ms: int) -> str:
    """An event's time in words."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


@dataclass(frozen=True)
class Marks:
    """The watermark that each batch runs with, in ms: at least ``low``, at most ``high``."""

    low: np.ndarray
    high: np.ndarray

    @property
    def late_low(self) -> np.ndarray:
        """By what each batch drops late rows: the watermark of the batch before it."""
        return np.concatenate([[0], self.low[:-1]])[: len(self.low)]

    @property
    def late_high(self) -> np.ndarray:
        return np.concatenate([[0], self.high[:-1]])[: len(self.high)]

    @property
    def final(self) -> tuple[int, int]:
        """The watermark of the last batch."""
        return (int(self.low[-1]), int(self.high[-1])) if len(self.low) else (0, 0)


def watermarks(inputs: Inputs, batches: Sequence[Batch], delays_ms: Sequence[int]) -> Marks:
    """The watermarks by the declared delay of each stream."""
    unsure = [inputs.at[~inputs.certain & (inputs.stream == stream)] for stream in range(len(delays_ms))]
    ahead = [int(at.max()) - delay if len(at) else 0 for at, delay in zip(unsure, delays_ms, strict=True)]
    highest = np.zeros((len(batches), len(delays_ms)), np.int64)
    sure = inputs.certain
    np.maximum.at(highest, (inputs.batch[sure], inputs.stream[sure]), inputs.at[sure] - np.array(delays_ms)[inputs.stream[sure]])
    low, high = _tracked(highest, batches, np.zeros(len(delays_ms), np.int64)), _tracked(highest, batches, np.array(ahead))
    return Marks(low, np.maximum(low, high))


def _tracked(highest: np.ndarray, batches: Sequence[Batch], ahead: np.ndarray) -> np.ndarray:
    """The watermark of each batch. ``highest`` is what each batch has of each stream, less the delay, 0 for nothing."""
    marks, mark, seen = np.zeros(len(batches), np.int64), 0, ahead.copy()
    for place, batch in enumerate(batches):
        if place and batch.start != batches[place - 1].start:
            seen = ahead.copy()
        marks[place] = mark
        seen = np.maximum(seen, highest[place])
        mark = max(mark, int(seen.min()))
    return marks
