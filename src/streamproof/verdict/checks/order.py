"""The order of records within a key: which of them came too late.

A producer sends a key's records to one partition of the source. A job that promises order passes them on in the order of their offsets
there, to one partition of the output. The key's *dominant partition* is the output partition that holds most of its records (the lowest
number wins a tie). Among the records with one key, read from one partition of the source, whose offsets are known:

    REORDERED   a record whose first copy in the dominant partition lies behind the first copy of a record that was read after it
    REORDERED   a record that was delivered, but not to the dominant partition: readers cannot tell its place

First copies are compared: a record that is delivered again, behind newer ones, is DUPLICATED and moves nothing. When an attempt fails half
way and the next one repeats all of it, the first copies are still in order, provided that each attempt writes in order and without holes.
An attempt that continued past a record which it could not write breaks the order, so only strategies that undo a failed attempt promise
this. Two kinds of records are not compared: records without a key, and records of different source partitions (adding one moves keys). An
ACKED record with a key whose offset is unknown cannot be judged: where ordered is promised, it makes the run INCONCLUSIVE.

A pure function of the matched histories and the keys.
"""

from __future__ import annotations

import numpy as np

from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.matching import Finding, Matching


def reordered(matched: Matching, keys: np.ndarray) -> list[Finding]:
    """The records that came too late. ``keys`` numbers the key of each of the first rows of ``sent``, -1 for none."""
    sent, delivered = matched.sent, matched.delivered
    rows, send = matched.rows[matched.was_sent], matched.send[matched.was_sent]
    judged = send < len(keys)
    rows, send = rows[judged], send[judged]
    judged = (keys[send] >= 0) & (sent.offset[send] >= 0)
    rows, send = rows[judged], send[judged]
    if not len(rows):
        return []
    group = np.unique(keys[send] * (int(sent.partition.max()) + 1) + sent.partition[send], return_inverse=True)[1]
    at_dominant = delivered.partition[rows] == _dominant_partition(group, delivered.partition[rows], send)[group]
    astray = np.zeros(len(sent), bool)
    astray[send] = True
    astray[send[at_dominant]] = False
    rows, send, group = rows[at_dominant], send[at_dominant], group[at_dominant]
    order = np.lexsort((delivered.offset[rows], send))
    first = order[np.r_[True, send[order][1:] != send[order][:-1]]]
    first = first[np.lexsort((delivered.offset[rows[first]], group[first]))]
    # The highest source offset so far, begun anew with each group: what lies below it was overtaken.
    lifted = sent.offset[send[first]] + group[first] * (int(sent.offset[send].max()) + 1)
    late = first[lifted < np.maximum.accumulate(lifted)]
    named = {int(send[at]): int(rows[at]) for at in late}
    return [
        matched.finding(Anomaly.REORDERED, number, 1, (named[number],) if number in named else ())
        for number in sorted({*named, *np.flatnonzero(astray).tolist()})
    ]


def _dominant_partition(group: np.ndarray, partition: np.ndarray, send: np.ndarray) -> np.ndarray:
    """For each group the output partition that holds most of its records."""
    width = int(partition.max()) + 1
    first = np.unique(send * width + partition, return_index=True)[1]
    places, counts = np.unique(group[first] * width + partition[first], return_counts=True)
    groups, partitions = np.divmod(places, width)
    order = np.lexsort((partitions, -counts, groups))
    best = order[np.r_[True, groups[order][1:] != groups[order][:-1]]]
    return np.asarray(partitions[best])
