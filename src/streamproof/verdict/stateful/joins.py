"""Stream-stream joins by key and event time, inner or left outer.

Stream 0 is the left side, stream 1 the right. Two events join when they have the same key and the right one's time is at most ``before``
earlier and at most ``after`` later than the left one's (0 and 0: at the same time). By the watermark
(:mod:`streamproof.verdict.stateful.watermark`), with W(N) that of batch N, and both streams having one:

    an event counts     when its time is after W(N-1), N being the batch that read it; else it is late, and dropped
    a pair is there     once, when both count: whichever came first waits in the state until W has passed all that could join it
    without a partner   (left outer) a left event that counts and that no right one joins is there once, with nothing on its right, as soon
                        as W has passed the last time at which a partner could be: at or before W of the last batch it is due. Of an
                        interval Spark waits for 1 ms more
    late rows of N      the late events of both sides, each one

Results are about the two records, (producer, sequence) of each, -1 for nothing, and say the two values.
"""

from __future__ import annotations

import numpy as np

from streamproof.evidence.events import Inputs
from streamproof.verdict.stateful.results import NOTHING, Expected
from streamproof.verdict.stateful.watermark import Marks

VALUES = ("left", "right")


def joined(inputs: Inputs, marks: Marks, *, outer: bool, before_ms: int = 0, after_ms: int = 0) -> Expected:
    """The pairs that may be delivered, and the left events without a partner."""
    sure = inputs.certain
    late = sure & (inputs.at <= marks.late_low[inputs.batch])
    counts = sure & (inputs.at > marks.late_high[inputs.batch])
    left, right = (np.flatnonzero(~late & (inputs.stream == side)) for side in (0, 1))
    one, other = _pairs(inputs, left, right, before_ms, after_ms)
    about, values, certain = _named(inputs, one, other), _values(inputs, one, other), counts[one] & counts[other]
    if outer:
        last = inputs.at + after_ms + (1 if before_ms or after_ms else 0)
        alone, due_for_certain = _alone(marks, counts, left, one, other, last)
        nobody = np.full(len(alone), -1, np.int64)
        about = np.concatenate([about, _named(inputs, alone, nobody)])
        values = np.concatenate([values, _values(inputs, alone, nobody)])
        certain = np.concatenate([certain, due_for_certain])
    least, most = (np.bincount(inputs.batch[mask], minlength=len(marks.low)) for mask in (late, sure & ~counts))
    bounds = np.stack([least, most + int((~sure).sum())], axis=1)
    return Expected(about, values, values, certain, bounds, int(late.sum()))


def _pairs(inputs: Inputs, left: np.ndarray, right: np.ndarray, before_ms: int, after_ms: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of all events that join, by binary search among the right ones in the order of key and time."""
    right = right[np.lexsort((inputs.at[right], inputs.key[right]))]
    span = int(inputs.at.max(initial=0)) + max(before_ms, 0) + max(after_ms, 0) + 1  # keys lie further apart than any times
    place = inputs.key[right] * (2 * span) + inputs.at[right]
    own = inputs.key[left] * (2 * span) + inputs.at[left]
    low, high = np.searchsorted(place, own - before_ms, "left"), np.searchsorted(place, own + after_ms, "right")
    count = np.maximum(high - low, 0)
    one = np.repeat(left, count)
    first = np.repeat(low - np.r_[0, np.cumsum(count)[:-1]][: len(count)], count)
    return one, right[first + np.arange(len(one))]


def _alone(
    marks: Marks, counts: np.ndarray, left: np.ndarray, one: np.ndarray, other: np.ndarray, last: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The left events that may be there alone, and whether each must be. ``last`` is when a partner of each could come at the latest."""
    low, high = marks.final
    partnered, perhaps = np.zeros(len(last), bool), np.zeros(len(last), bool)
    partnered[one[counts[other]]] = True
    perhaps[one] = True
    alone = left[~partnered[left] & (last[left] <= high)]
    return alone, counts[alone] & ~perhaps[alone] & (last[alone] <= low)


def _named(inputs: Inputs, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    nobody = other < 0
    columns = [inputs.producer[one], inputs.sequence[one]]
    columns += [np.where(nobody, -1, inputs.producer[other]), np.where(nobody, -1, inputs.sequence[other])]
    return np.stack(columns, axis=1)


def _values(inputs: Inputs, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.stack([inputs.value[one], np.where(other < 0, NOTHING, inputs.value[other])], axis=1)
