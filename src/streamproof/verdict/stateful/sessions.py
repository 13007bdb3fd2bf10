"""Session windows: how many events of each key, and the sum of a value, in each stretch of event time without a gap.

An event at t opens the session [t, t + gap). Sessions of one key that overlap or touch are one. By the watermark
(:mod:`streamproof.verdict.stateful.watermark`), with W(N) that of batch N:

    an event counts       when its own session ends after W(N-1), N being the batch that read it; else it is late, even if a session
                          that is still open could take it in
    a session is emitted  once, in append mode, by the first batch N whose W(N) has reached its end. It leaves the state: an event that
                          comes later and would have touched it opens another one, and the two may overlap
    late rows of N        what the operator drops, and Spark counts: the (key, time) pairs of late events in each task that reads, where
                          events of one time are aggregated. How they fell to tasks is not known: at least the pairs, at most the events

So sessions are recomputed batch by batch, as they were. Of a key with an INDETERMINATE event no session is certain, for it may have joined
any two: what is delivered of it must lie within the times of the key's events and count no more than there are. Where such an event may
have moved the watermark, that is so of every key.

Results are about (key, begin of the session in ms) and say its end in ms, count and sum.
"""

from __future__ import annotations

import numpy as np

from streamproof.evidence.events import Inputs
from streamproof.verdict.stateful.results import Expected, Results
from streamproof.verdict.stateful.watermark import Marks

VALUES = ("end", "count", "sum")
_COLUMNS = 5  # key, begin, end, count, sum


def sessions(inputs: Inputs, marks: Marks, gap_ms: int, delivered: Results) -> Expected:
    """The sessions that may be delivered. ``delivered`` is looked at for keys with an INDETERMINATE event only."""
    sure = inputs.certain
    end = inputs.at + gap_ms
    doubtful = np.isin(inputs.key, inputs.key[~sure]) | bool((marks.low != marks.high).any())
    late = sure & (end <= marks.late_low[inputs.batch])
    counts = sure & ~late
    state, emitted = np.zeros((0, _COLUMNS), np.int64), [np.zeros((0, _COLUMNS), np.int64)]
    for batch, mark in enumerate(marks.low.tolist()):
        rows = np.flatnonzero(counts & (inputs.batch == batch))
        new = np.stack([inputs.key[rows], inputs.at[rows], end[rows], np.ones(len(rows), np.int64), inputs.value[rows]], axis=1)
        state = _merged(np.concatenate([state, new]))
        out = state[:, 2] <= mark
        emitted.append(state[out])
        state = state[~out]
    closed = np.concatenate(emitted)
    settled = ~np.isin(closed[:, 0], inputs.key[doubtful])
    loose = _loose(inputs, doubtful & ~late, gap_ms, marks.final[1], delivered)
    bounds = _late_rows(inputs, late, sure & (end <= marks.late_high[inputs.batch]), len(marks.low))
    low_values, high_values = (np.concatenate([closed[settled, 2:], part]) for part in (loose[1], loose[2]))
    about = np.concatenate([closed[settled, :2], loose[0]])
    return Expected(
        about, low_values, high_values, np.r_[np.ones(int(settled.sum()), bool), np.zeros(len(loose[0]), bool)], bounds, int(late.sum())
    )


def _merged(rows: np.ndarray) -> np.ndarray:
    """Sessions of a key that overlap or touch, as one."""
    if not len(rows):
        return rows
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    # Keys are lifted apart, so that the latest end so far never reaches into the next key.
    lift = rows[:, 0] * (int(rows[:, 2].max()) + 1)
    reach = np.maximum.accumulate(rows[:, 2] + lift)
    new = np.r_[True, (rows[1:, 0] != rows[:-1, 0]) | (rows[1:, 1] + lift[1:] > reach[:-1])]
    first = np.flatnonzero(new)
    ends, counts, sums = np.maximum.reduceat(rows[:, 2], first), np.add.reduceat(rows[:, 3], first), np.add.reduceat(rows[:, 4], first)
    return np.stack([rows[first, 0], rows[first, 1], ends, counts, sums], axis=1)


def _loose(inputs: Inputs, mask: np.ndarray, gap_ms: int, final: int, delivered: Results) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What was delivered of keys that are in doubt and could be right: about what, and the bounds of its values."""
    about, low, high = [], [], []
    for key in np.unique(inputs.key[mask]):
        at, value = inputs.at[mask & (inputs.key == key)], inputs.value[mask & (inputs.key == key)]
        for begin in np.unique(delivered.about[delivered.readable & (delivered.about[:, 0] == key), 1]):
            within = at >= begin
            if begin in at and begin + gap_ms <= final:
                about.append((key, begin))
                low.append((begin + gap_ms, 1, int(np.minimum(value[within], 0).sum())))
                high.append((min(int(at[within].max()) + gap_ms, final), int(within.sum()), int(np.maximum(value[within], 0).sum())))
    return np.array(about, np.int64).reshape(-1, 2), np.array(low, np.int64).reshape(-1, 3), np.array(high, np.int64).reshape(-1, 3)


def _late_rows(inputs: Inputs, late: np.ndarray, perhaps: np.ndarray, batches: int) -> np.ndarray:
    pairs = np.unique(np.stack([inputs.batch[late], inputs.key[late], inputs.at[late]], axis=1), axis=0)
    least, most = np.bincount(pairs[:, 0], minlength=batches), np.bincount(inputs.batch[perhaps], minlength=batches)
    return np.stack([least, most + int((~inputs.certain).sum())], axis=1)
