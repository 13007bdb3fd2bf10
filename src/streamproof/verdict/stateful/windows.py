"""Tumbling and sliding windows: how many events of each key, and the sum of a value, in each window of event time.

Windows of one length begin at every multiple of the slide since the epoch; where the slide is the length, each event lies in one window
(tumbling), else in several (sliding). By the watermark (:mod:`streamproof.verdict.stateful.watermark`), with W(N) that of batch N:

    an event counts     in those of its windows that end after W(N-1), N being the batch that read it; in the others it is late
    a window is emitted once, in append mode, when W has passed its end: those that end at or before the W of the last batch are due
    late rows of N      what the operator drops, and Spark counts: the (window, key) pairs of late events in it, each pair once, for events
                        are aggregated in part before they get there. So rows are fewer than records, or with sliding windows more
    late records        records that count in none of their windows

Results are about (key, begin of the window in ms) and say count and sum.
"""

from __future__ import annotations

import numpy as np

from streamproof.evidence.events import Inputs
from streamproof.verdict.stateful.results import Expected
from streamproof.verdict.stateful.watermark import Marks

VALUES = ("count", "sum")


def windows(inputs: Inputs, marks: Marks, length_ms: int, slide_ms: int) -> Expected:
    """The windows that may be delivered."""
    record, begin = spread(inputs.at, length_ms, slide_ms)
    end, batch, sure = begin + length_ms, inputs.batch[record], inputs.batch[record] >= 0
    late_for_certain, in_time_for_certain = sure & (end <= marks.late_low[batch]), sure & (end > marks.late_high[batch])
    counts = ~late_for_certain
    low_end, high_end = marks.final
    about, low, high, any_certain = _summed(inputs, record[counts], begin[counts], in_time_for_certain[counts])
    ends = about[:, 1] + length_ms
    due = ends <= high_end
    certain = any_certain & (ends <= low_end)
    in_time = np.zeros(len(inputs), bool)
    in_time[record[counts]] = True
    late = _late_rows(inputs, record, begin, late_for_certain, sure & ~in_time_for_certain, ~sure, len(marks.low))
    return Expected(about[due], low[due], high[due], certain[due], late, int((~in_time & inputs.certain).sum()))


def spread(at: np.ndarray, length_ms: int, slide_ms: int) -> tuple[np.ndarray, np.ndarray]:
    """Each pair of an event and a window that it lies in: the event's row, the window's begin."""
    most = -(-length_ms // slide_ms)
    begin = (at - at % slide_ms)[:, None] - np.arange(most) * slide_ms
    row, which = np.nonzero(begin + length_ms > at[:, None])
    return row, begin[row, which]


def _summed(
    inputs: Inputs, record: np.ndarray, begin: np.ndarray, sure: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What each (key, window) says at least and at most, and whether an event certainly counts in it."""
    pairs = np.stack([inputs.key[record], begin], axis=1)
    about, group = np.unique(pairs, axis=0, return_inverse=True)
    group, value = group.reshape(-1), inputs.value[record]
    total = len(about)

    def added(amounts: np.ndarray) -> np.ndarray:
        sums = np.zeros(total, np.int64)
        np.add.at(sums, group, amounts)
        return sums

    low = np.stack([added(sure.astype(np.int64)), added(np.where(sure, value, np.minimum(value, 0)))], axis=1)
    high = np.stack([added(np.ones(len(group), np.int64)), added(np.where(sure, value, np.maximum(value, 0)))], axis=1)
    low[:, 0] = np.maximum(low[:, 0], 1)  # an empty window is not emitted
    return about, low, high, added(sure.astype(np.int64)) > 0


def _late_rows(
    inputs: Inputs, record: np.ndarray, begin: np.ndarray, certainly: np.ndarray, perhaps: np.ndarray, anywhere: np.ndarray, batches: int
) -> np.ndarray:
    """At least and at most how many (window, key) pairs are late in each batch."""

    def pairs(mask: np.ndarray) -> np.ndarray:
        rows = np.unique(np.stack([inputs.batch[record[mask]], inputs.key[record[mask]], begin[mask]], axis=1), axis=0)
        return np.bincount(rows[:, 0], minlength=batches)

    unsure = len(np.unique(np.stack([inputs.key[record[anywhere]], begin[anywhere]], axis=1), axis=0))
    return np.stack([pairs(certainly), pairs(perhaps | certainly) + unsure], axis=1).reshape(batches, 2)
