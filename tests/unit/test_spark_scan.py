"""What the Spark job looks up in ranges is what the local scan looks up by binary search. (The job itself: ``test_spark_check.py``.)"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamproof.verdict.checks.commits import PARTITION_BITS
from streamproof.verdict.scan.ranges import Due
from streamproof.verdict.scan.spark_scan import Ranges, binned, decided_by, passed_over, read_by
from streamproof.verdict.timing.recovery import NEVER, decided

BEGUN_S = 1_767_225_600


@st.composite
def reports(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Lines of ``progress.jsonl``: batches in their order, each of which goes on where the last one ended; some are not reported."""
    reached = dict.fromkeys(("0", "1", "7"), 0)
    lines = []
    for number in range(draw(st.integers(0, 8))):
        begins = dict(reached)
        for name in reached:
            reached[name] += draw(st.integers(0, 3000))
        at = f"2026-01-01T00:00:{draw(st.integers(0, 59)):02d}.000+00:00"
        if draw(st.booleans()) or not number:
            known = begins if number or draw(st.booleans()) else None
            lines.append({"batch": number, "start": draw(st.integers(1, 3)), "committed_at": at, "from": known, "until": dict(reached)})
    return lines


def looked_up(found: Ranges, place: np.ndarray) -> list[list[int]]:
    """The values of the ranges that a join by bins gives each place."""
    low, high, value = found
    width, row, bins = binned(low, high)
    return [sorted(value[row[(bins == each // width) & (low[row] <= each) & (each < high[row])]].tolist()) for each in place.tolist()]


@given(reports(), st.lists(st.tuples(st.sampled_from([0, 1, 2, 7]), st.integers(0, 30_000)), max_size=40))
def test_batches_and_reports_are_those_of_the_local_scan(progress: list[dict[str, Any]], records: list[tuple[int, int]]) -> None:
    partition, offset = np.array(records, np.int64).reshape(-1, 2).T
    due, place = Due(progress), (partition << PARTITION_BITS) + offset
    batch = [[number] if number >= 0 else [] for number in due.batch(partition, offset).tolist()]
    assert looked_up(read_by(progress), place) == batch
    reported = looked_up(passed_over(progress), place)
    assert all(len(each) < 2 for each in reported)
    first = np.array([each[0] if each else NEVER for each in reported], np.int64)
    for second in range(-1, 61):
        at = np.full(len(place), (BEGUN_S + second) * 1000, np.int64)
        assert (at > first).tolist() == due.behind(at, partition, offset).tolist()


@given(st.lists(st.integers(0, 10_000), unique=True, max_size=30), st.lists(st.integers(0, 11_000), max_size=40))
def test_moments_are_decided_as_the_local_scan_has_it(ends: list[int], written: list[int]) -> None:
    known, at = np.array(sorted(ends), np.int64), np.array(written, np.int64)
    place = np.maximum(at, known[0]) if len(known) else at
    found = [each[0] if each else moment for each, moment in zip(looked_up(decided_by(known), place), written, strict=True)]
    assert found == decided(at, known).tolist()


@given(st.lists(st.tuples(st.integers(0, 1 << 50), st.integers(1, 1 << 40)), min_size=1, max_size=50))
def test_ranges_take_few_rows_however_unlike_they_are(spans: list[tuple[int, int]]) -> None:
    low, length = np.array(spans, np.int64).T
    width, row, bins = binned(low, low + length)
    assert len(row) <= 3 * len(spans) + len(spans) ** 2 / width  # what rounding a width down may add
    touched = [(each, number) for each, (begin, size) in enumerate(spans) for number in (begin // width, (begin + size - 1) // width)]
    assert set(touched) <= set(zip(row.tolist(), bins.tolist(), strict=True)), "the first and the last bin of each range"
