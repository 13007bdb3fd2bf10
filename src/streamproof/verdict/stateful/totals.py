"""Running totals in a state store: how many events of each key so far, and the sum of a value (update mode).

There is no watermark, and nothing is late. In each batch every key that had events in it delivers its total over this batch and all before
it, once. Counts of one key grow from batch to batch, so that a total is known by its key and count.

A state that was lost begins again: totals that are due are MISSING, or there are UNEXPECTED ones, or a count comes with a WRONG_VALUE. A
state that took a batch in twice shows the same.

Of a key with an INDETERMINATE event it is not known which totals there were: each one delivered may count at most all of its events.

Results are about (key, count) and say the sum.
"""

from __future__ import annotations

import numpy as np

from streamproof.evidence.events import Inputs
from streamproof.verdict.stateful.results import Expected

VALUES = ("sum",)


def totals(inputs: Inputs, batches: int) -> Expected:
    """The totals that may be delivered."""
    settled = ~np.isin(inputs.key, inputs.key[~inputs.certain])
    rows = np.flatnonzero(settled)
    rows = rows[np.lexsort((inputs.batch[rows], inputs.key[rows]))]
    key, batch = inputs.key[rows], inputs.batch[rows]
    place = np.arange(len(rows)) - np.searchsorted(key, key, "left")
    sums = np.cumsum(inputs.value[rows])
    before = np.r_[0, sums][np.searchsorted(key, key, "left")]
    last = np.r_[(key[1:] != key[:-1]) | (batch[1:] != batch[:-1]), True][: len(rows)]
    about, total = np.stack([key, place + 1], axis=1)[last], (sums - before)[last, None]
    loose_about, loose_low, loose_high = _loose(inputs, ~settled)
    return Expected(
        np.concatenate([about, loose_about]),
        np.concatenate([total, loose_low]),
        np.concatenate([total, loose_high]),
        np.r_[np.ones(len(about), bool), np.zeros(len(loose_about), bool)],
        np.zeros((batches, 2), np.int64),
        0,
    )


def _loose(inputs: Inputs, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every count that a key in doubt may have, with the bounds of its sum."""
    about, low, high = [], [], []
    for key in np.unique(inputs.key[mask]):
        value = inputs.value[mask & (inputs.key == key)]
        for count in range(1, len(value) + 1):
            about.append((key, count))
            low.append((int(np.minimum(value, 0).sum()),))
            high.append((int(np.maximum(value, 0).sum()),))
    return np.array(about, np.int64).reshape(-1, 2), np.array(low, np.int64).reshape(-1, 1), np.array(high, np.int64).reshape(-1, 1)
