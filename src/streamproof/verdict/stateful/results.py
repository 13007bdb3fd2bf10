"""Results of a stateful job: expected results, delivered results, and their differences.

A result has no record identity. It is identified by what it is about (a window and a key, two joined records), and it has values. The
recomputation gives each possible result, the bounds of its values, and whether it must be delivered:

    MISSING       a result that must be delivered, without a delivered copy
    UNEXPECTED    a delivered result that the recomputation does not give: no acknowledged record leads to it, or not yet
    WRONG_VALUE   a delivered result with a value outside of its bounds
    REPEATED      a result that was delivered more than once, right or wrong
    DROPPED       a micro-batch in which the job dropped another number of late rows than the declared delay requires

When the outcome of every send is known, lower and upper bound are equal, and the comparison is exact. A record whose send is INDETERMINATE
may be part of a result or not: the bounds are the result's values without it and with it, for a sum its lowest and its highest.

Pure functions of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from streamproof.evidence.batches import Batch
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.matching import Finding
from streamproof.verdict.stateful.watermark import Marks, moment

NOBODY = np.zeros(0, np.int64)
NOTHING = int(np.iinfo(np.int64).min)
"""Stands for a null among values."""


@dataclass(frozen=True)
class Expected:
    """The results that may be there. ``about`` is what each is about (n, k), ``low`` and ``high`` bound its values (n, m), ``certain`` says
    that it must be there. ``late`` bounds the late rows of each batch (b, 2); ``late_records`` counts the records that were lost to it."""

    about: np.ndarray
    low: np.ndarray
    high: np.ndarray
    certain: np.ndarray
    late: np.ndarray
    late_records: int

    def __len__(self) -> int:
        return len(self.about)


@dataclass(frozen=True)
class Results:
    """What was delivered: ``about`` (n, k) and ``values`` (n, m), with ``start`` and ``batch`` of who wrote each, -1 where it is not said.
    A row of ``readable`` is False where the output holds something that is no result."""

    about: np.ndarray
    values: np.ndarray
    start: np.ndarray
    batch: np.ndarray
    readable: np.ndarray

    def __len__(self) -> int:
        return len(self.about)


Describe = Callable[[np.ndarray], str]


def _silent(about: np.ndarray) -> str:
    return ""


def compare(expected: Expected, delivered: Results, values: Sequence[str], name: Describe, why: Describe = _silent) -> list[Finding]:
    """Where the results differ. ``values`` names the values; ``name`` says in words what a result is about, ``why`` what it is made of."""
    good = np.flatnonzero(delivered.readable)
    both = np.concatenate([expected.about, delivered.about[good]])
    group = np.unique(both, axis=0, return_inverse=True)[1].reshape(-1) if len(both) else np.zeros(0, np.int64)
    place = np.full(len(both), -1, np.int64)
    place[group[: len(expected)]] = np.arange(len(expected))
    of = place[group[len(expected) :]]
    copies = np.bincount(of[of >= 0], minlength=len(expected))
    findings = [
        _finding(
            Anomaly.MISSING, expected.about[at], (), delivered, name, _sentence(_bounds(expected, at, values), why(expected.about[at]))
        )
        for at in np.flatnonzero(expected.certain & (copies == 0)).tolist()
    ]
    strange: dict[tuple[int, ...], list[int]] = {}
    for row in good[of < 0]:
        strange.setdefault(tuple(delivered.about[row].tolist()), []).append(int(row))
    for about, rows in strange.items():
        detail = _sentence(_values(delivered, rows[0], values), why(np.array(about)))
        findings.append(_finding(Anomaly.UNEXPECTED, np.array(about), rows, delivered, name, detail))
    for row in np.flatnonzero(~delivered.readable):
        findings.append(
            _finding(Anomaly.UNEXPECTED, NOBODY, [int(row)], delivered, lambda _: "something that is no result", "it cannot be read")
        )
    expected_rows = good[of >= 0]
    at = of[of >= 0]
    wrong = ((delivered.values[expected_rows] < expected.low[at]) | (delivered.values[expected_rows] > expected.high[at])).any(axis=1)
    for anomaly, mask in ((Anomaly.WRONG_VALUE, wrong), (Anomaly.REPEATED, copies[at] > 1)):
        rows_of: dict[int, list[int]] = {}
        for row, number in zip(expected_rows[mask].tolist(), at[mask].tolist(), strict=True):
            rows_of.setdefault(number, []).append(row)
        for number, rows in rows_of.items():
            instead = f" instead of {_bounds(expected, number, values)}" if anomaly is Anomaly.WRONG_VALUE else ""
            detail = _sentence(_values(delivered, rows[0], values) + instead, why(expected.about[number]))
            findings.append(_finding(anomaly, expected.about[number], rows, delivered, name, detail))
    return findings


def dropped(expected: Expected, batches: Sequence[Batch], marks: Marks) -> list[Finding]:
    """The batches that dropped another number of late rows than they should. One that did not say how many is not judged."""
    findings = []
    for place, (batch, (low, high)) in enumerate(zip(batches, expected.late.tolist(), strict=True)):
        if batch.dropped is not None and not low <= batch.dropped <= high:
            due = str(low) if low == high else f"{low} to {high}"
            detail = f"it dropped {batch.dropped} late rows, the declared delay has it drop {due}"
            set_by_job, declared = batches[place - 1].watermark_ms if place else 0, int(marks.late_high[place])
            if set_by_job is not None and set_by_job != declared:
                detail += f"; it took for late what was not after {moment(set_by_job)}, declared is {moment(declared)}"
            findings.append(Finding(Anomaly.DROPPED, None, None, batch.dropped, None, (), batch.start, batch.number, detail=detail))
    return findings


def _finding(anomaly: Anomaly, about: np.ndarray, rows: Sequence[int], delivered: Results, name: Describe, detail: str) -> Finding:
    has_batch = bool(rows) and int(delivered.batch[rows[-1]]) >= 0
    start, batch = (int(delivered.start[rows[-1]]), int(delivered.batch[rows[-1]])) if has_batch else (None, None)
    return Finding(anomaly, None, None, len(rows), None, tuple(rows), start, batch, name(about), detail, tuple(about.tolist()))


def _sentence(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _values(delivered: Results, row: int, values: Sequence[str]) -> str:
    return ", ".join(f"{name} {_value(int(value))}" for name, value in zip(values, delivered.values[row], strict=True))


def _bounds(expected: Expected, at: int, values: Sequence[str]) -> str:
    pairs = zip(values, expected.low[at].tolist(), expected.high[at].tolist(), strict=True)
    return ", ".join(f"{name} {_value(low)}" if low == high else f"{name} {_value(low)} to {_value(high)}" for name, low, high in pairs)


def _value(value: int) -> str:
    return "nothing" if value == NOTHING else str(value)
