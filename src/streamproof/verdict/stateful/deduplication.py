"""De-duplication within the watermark (``dropDuplicatesWithinWatermark``): of the events with one key, which are passed on.

By the watermark (:mod:`streamproof.verdict.stateful.watermark`), with W(N) that of batch N:

    an event counts    when its time is after W(N-1), N being the batch that read it; else it is late, and dropped
    an event passes    when it counts and the state does not hold its key; the state then holds the key until W has passed the event's
                       time plus the delay: that is looked at as each batch ends
    in one batch       any one of those with a new key may be the first: exactly one of them passes. Which one decides until when the key
                       is held; the output says which it was
    late rows of N     the late events, each one

Of a key with an INDETERMINATE event nothing is certain but what may not be: an event that was not sent, or more than once the same. Where
such an event may have moved the watermark, that is so of every key.

Results are about (key, how often the key had passed before) and say (producer, sequence) of the event that passed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamproof.evidence.events import Inputs
from streamproof.verdict.stateful.results import Expected, Results
from streamproof.verdict.stateful.watermark import Marks

VALUES = ("passed",)


@dataclass(frozen=True)
class Passed:
    """What should have passed, and what did, by the same names."""

    expected: Expected
    delivered: Results


def deduplicated(inputs: Inputs, marks: Marks, delay_ms: int, delivered: Results) -> Passed:
    """``delivered`` is about (producer, sequence) of what passed."""
    sure, row_of = inputs.certain, _rows(inputs, delivered)
    doubtful = np.isin(inputs.key, inputs.key[~sure]) | bool((marks.low != marks.high).any())
    late = sure & (inputs.at <= marks.late_low[inputs.batch])
    was_delivered = np.zeros(len(inputs), bool)
    was_delivered[row_of[row_of >= 0]] = True
    until = np.full(len(inputs.keys), -1, np.int64)  # until when the state holds each key, -1 while it does not
    turn, occurrence = np.zeros(len(inputs.keys), np.int64), np.full(len(inputs), -1, np.int64)
    about = [np.zeros((0, 2), np.int64)]
    for batch, mark in enumerate(marks.low.tolist()):
        rows = np.flatnonzero(sure & ~late & ~doubtful & (inputs.batch == batch))
        rows = rows[until[inputs.key[rows]] < 0]
        order = np.lexsort((~was_delivered[rows], inputs.key[rows]))  # the one that was delivered first
        rows = rows[order]
        first = rows[np.r_[True, inputs.key[rows][1:] != inputs.key[rows][:-1]][: len(rows)]]
        occurrence[rows] = turn[inputs.key[rows]]
        about.append(np.stack([inputs.key[first], turn[inputs.key[first]]], axis=1))
        turn[inputs.key[first]] += 1
        until[inputs.key[first]] = inputs.at[first] + delay_ms
        until[(until >= 0) & (until <= mark)] = -1
    must = np.concatenate(about)
    free = np.flatnonzero(doubtful & ~late)
    occurrence[free] = inputs.sequence[free] + (inputs.producer[free] << 40)  # each is a name of its own
    may = np.stack([inputs.key[free], occurrence[free]], axis=1)
    nothing = np.zeros((len(must) + len(may), 0), np.int64)
    perhaps = sure & (inputs.at <= marks.late_high[inputs.batch])
    least, most = (np.bincount(inputs.batch[mask], minlength=len(marks.low)) for mask in (late, perhaps))
    bounds = np.stack([least, most + int((~sure).sum())], axis=1)
    certain = np.r_[np.ones(len(must), bool), np.zeros(len(may), bool)]
    expected = Expected(np.concatenate([must, may]), nothing, nothing, certain, bounds, int(late.sum()))
    named = np.stack([np.where(row_of >= 0, inputs.key[row_of], -1), np.where(row_of >= 0, occurrence[row_of], -1)], axis=1)
    return Passed(expected, Results(named, np.zeros((len(named), 0), np.int64), delivered.start, delivered.batch, delivered.readable))


def _rows(inputs: Inputs, delivered: Results) -> np.ndarray:
    """The row of each event that was delivered, -1 for one that nobody sent."""
    key = inputs.producer << 48 | inputs.sequence
    order = np.argsort(key, kind="stable")
    wanted = delivered.about[:, 0] << 48 | delivered.about[:, 1]
    place = np.minimum(np.searchsorted(key[order], wanted), max(len(key) - 1, 0))
    row = order[place] if len(key) else np.full(len(wanted), -1, np.int64)
    return np.where((key[row] == wanted) if len(key) else False, row, -1)
