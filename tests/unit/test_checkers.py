"""Order, atomicity and commits: each checker names what was damaged, and nothing that is legal."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from streamproof.evidence.clock import Clock
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import ClockStepped, RunCreated
from streamproof.evidence.outcome import Outcome
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks import commits
from streamproof.verdict.checks.atomicity import ranges, torn
from streamproof.verdict.checks.matching import Finding, match
from streamproof.verdict.checks.order import reordered
from tests.support.histories import BEGUN, Copy, Histories, at, clean

BEGUN_MS = round(BEGUN.timestamp() * 1000)


def _ids(findings: list[Finding]) -> list[tuple[int | None, int | None]]:
    return sorted((finding.producer, finding.sequence) for finding in findings)  # type: ignore[type-var]


# --- order --------------------------------------------------------------------------------------------------------------------------


def _out_of_order(histories: Histories, keys: list[int] | None = None) -> list[tuple[int | None, int | None]]:
    numbers = np.array(keys if keys is not None else [0] * len(histories.sent), np.int64)
    findings = reordered(match(*histories.columns()), numbers)
    assert all(finding.anomaly is Anomaly.REORDERED for finding in findings)
    return _ids(findings)


def _swapped(histories: Histories, one: int, other: int) -> None:
    """Exchange the places of two copies in the output."""
    a, b = histories.delivered[one], histories.delivered[other]
    histories.delivered[one] = replace(a, partition=b.partition, offset=b.offset)
    histories.delivered[other] = replace(b, partition=a.partition, offset=a.offset)


def test_records_in_the_order_of_the_source_are_in_order() -> None:
    assert _out_of_order(clean(30)) == []


def test_of_two_records_that_changed_places_the_one_that_came_too_late_is_named() -> None:
    histories = clean(10, partitions=1)
    _swapped(histories, 3, 4)
    assert _out_of_order(histories) == [(0, 3)]


def test_every_record_behind_a_newer_one_is_named() -> None:
    histories = clean(10, partitions=1)
    _swapped(histories, 2, 5)
    assert _out_of_order(histories) == [(0, 2), (0, 3), (0, 4)]


def test_the_order_between_keys_is_nobodys() -> None:
    histories = clean(10, partitions=1)
    _swapped(histories, 3, 4)
    assert _out_of_order(histories, list(range(10))) == []


def test_records_without_a_key_have_no_order() -> None:
    histories = clean(10, partitions=1)
    _swapped(histories, 3, 4)
    assert _out_of_order(histories, [-1] * 10) == []


def test_the_order_between_partitions_of_the_source_is_nobodys() -> None:
    histories = clean(12, partitions=2)
    histories.delivered = [replace(copy, partition=0, offset=100 - 50 * copy.partition + copy.offset) for copy in histories.delivered]
    assert _out_of_order(histories) == []


def test_a_record_that_is_delivered_again_behind_newer_ones_moves_nothing() -> None:
    histories = clean(10, partitions=1)
    histories.double([(0, 2), (0, 3)])
    assert _out_of_order(histories) == []


def test_gaps_and_losses_are_no_disorder() -> None:
    histories = clean(10, partitions=1)
    histories.drop([(0, 4), (0, 7)])
    histories.delivered = [replace(copy, offset=copy.offset * 3 + 7) for copy in histories.delivered]
    assert _out_of_order(histories) == []


def test_a_record_away_from_its_keys_partition_is_named() -> None:
    histories = clean(10, partitions=1)
    histories.change((0, 6), partition=1, offset=0)
    assert _out_of_order(histories) == [(0, 6)]


def test_a_second_copy_elsewhere_is_no_disorder() -> None:
    histories = clean(10, partitions=1)
    histories.delivered.append(replace(histories.delivered[6], partition=1, offset=0))
    assert _out_of_order(histories) == []


def test_a_send_whose_offset_is_not_known_has_no_place() -> None:
    histories = clean(10, partitions=1)
    _swapped(histories, 3, 4)
    histories.settle([(0, 3)], Outcome.INDETERMINATE)
    assert _out_of_order(histories) == []


# --- atomicity ----------------------------------------------------------------------------------------------------------------------


def _line(batch: int, begin: int, end: int, start: int = 1, at_ms: int = 0) -> dict[str, Any]:
    return {
        "batch": batch,
        "start": start,
        "from": {"0": begin} if begin else {},
        "until": {"0": end},
        "committed_at": np.datetime64(BEGUN_MS + at_ms, "ms").item().isoformat() + "+00:00",
    }


LINES = [_line(0, 0, 5), _line(1, 5, 10), _line(2, 10, 15)]


def _batched() -> Histories:
    histories = clean(15, partitions=1)
    histories.delivered = [replace(copy, batch=copy.offset // 5) for copy in histories.delivered]
    return histories


def _torn(histories: Histories, progress: list[dict[str, Any]] | None = None) -> list[tuple[int | None, int | None, int]]:
    found = torn(match(*histories.columns()), LINES if progress is None else progress)
    return [(finding.start, finding.batch, finding.copies) for finding in found]


def test_whole_batches_are_not_torn() -> None:
    assert _torn(_batched()) == []


def test_a_batch_of_which_nothing_is_there_is_not_torn() -> None:
    histories = _batched()
    histories.drop([(0, number) for number in range(5, 10)])
    assert _torn(histories) == []


def test_a_batch_that_lacks_a_record_is_torn() -> None:
    histories = _batched()
    histories.drop([(0, 7)])
    assert _torn(histories) == [(1, 1, 4)]


def test_a_batch_whose_rest_a_later_start_wrote_was_torn_between_the_two() -> None:
    histories = _batched()
    histories.change((0, 7), start=2)
    histories.change((0, 8), start=2)
    assert _torn(histories) == [(1, 1, 3), (2, 1, 2)]


def test_a_batch_that_a_later_start_wrote_again_as_a_whole_is_doubled_and_not_torn() -> None:
    histories = _batched()
    histories.delivered += [replace(copy, start=2, offset=99 + copy.offset) for copy in histories.delivered if copy.batch == 1]
    assert _torn(histories) == []


def test_a_record_that_may_never_have_been_read_tears_nothing() -> None:
    histories = _batched()
    histories.settle([(0, 7)], Outcome.INDETERMINATE)
    histories.drop([(0, 7)])
    assert _torn(histories) == []


def test_a_batch_that_was_not_reported_lies_between_its_neighbours() -> None:
    histories = _batched()
    histories.drop([(0, 7)])
    assert _torn(histories, [LINES[0], LINES[2]]) == [(1, 1, 4)]
    assert ranges([LINES[0], LINES[2]])[1] == ({"0": 5}, {"0": 10})


def test_a_batch_whose_range_is_not_known_is_not_judged() -> None:
    histories = _batched()
    histories.drop([(0, 12)])
    assert _torn(histories, LINES[:2]) == []


def test_copies_that_do_not_say_who_wrote_them_are_not_judged() -> None:
    histories = _batched()
    histories.delivered = [replace(copy, batch=None, start=None) for copy in histories.delivered]
    histories.drop([(0, 7)])
    assert _torn(histories) == []


# --- commits ------------------------------------------------------------------------------------------------------------------------

COMMITS = [_line(0, 0, 5, at_ms=100), _line(1, 5, 10, at_ms=200), _line(2, 10, 15, at_ms=300)]


def _ahead(
    histories: Histories, moved: dict[int, int] | None = None, progress: list[dict[str, Any]] | None = None
) -> list[tuple[int | None, int | None]]:
    """Each copy is made 10 ms before its batch is reported, but for those that were ``moved``, by row."""
    moved = moved or {}
    at = [BEGUN_MS + moved.get(row, 90 + 100 * (copy.batch or 0)) for row, copy in enumerate(histories.delivered)]
    compared = commits.compare(match(*histories.columns()), np.array(at, np.int64), COMMITS if progress is None else progress)
    assert compared.unordered == 0
    return _ids(list(compared.findings))


def _compared(moved: dict[int, int], clock: Clock, histories: Histories | None = None) -> tuple[list[tuple[int | None, int | None]], int]:
    """The records that are ahead, and how many cannot be judged."""
    histories = histories or _batched()
    at = np.array([BEGUN_MS + moved.get(row, 90 + 100 * (copy.batch or 0)) for row, copy in enumerate(histories.delivered)], np.int64)
    compared = commits.compare(match(*histories.columns()), clock.believed(at), COMMITS, clock)
    return _ids(list(compared.findings)), compared.unordered


YEAR_MS = 365 * 86_400_000


def test_output_at_a_time_when_the_run_was_not_is_neither_early_nor_late() -> None:
    clock = Clock(since=BEGUN_MS, until=BEGUN_MS + 1000)
    assert _compared({7: -13 * YEAR_MS}, clock) == ([], 1)
    assert _compared({7: +13 * YEAR_MS}, clock) == ([], 1)
    assert _compared({7: 900}, clock) == ([(0, 7)], 0), "a time that is believed is judged"


def test_a_copy_that_was_there_in_time_suffices_whatever_the_time_of_the_other() -> None:
    clock, histories = Clock(since=BEGUN_MS, until=BEGUN_MS + 1000), _batched()
    histories.double([(0, 7)])
    assert _compared({15: -YEAR_MS}, clock, histories) == ([], 0)
    assert _compared({7: 900, 15: -YEAR_MS}, clock, histories) == ([], 1), "the other may have been there in time"


def test_two_times_that_the_clock_showed_twice_have_no_order() -> None:
    clock = Clock(twice=((BEGUN_MS + 150, BEGUN_MS + 250),))
    assert _compared({7: 240}, clock) == ([], 5), "the records of batch 1, which was reported at 200 ms"
    assert _compared({7: 410}, clock) == ([(0, 7)], 4)


def test_the_clock_of_a_run_joins_its_steps_back_and_knows_how_far_they_led(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.journal.append(RunCreated(run="run", seed=1))
    created = round(datetime.fromisoformat(folder.journal.events()[0].at).timestamp() * 1000)
    for since, until in ((100, 500), (-200, 200)):
        stamps = (at((since + created - BEGUN_MS) / 1000), at((until + created - BEGUN_MS) / 1000))
        folder.journal.append(ClockStepped(step_ms=-400, since=stamps[0], until=stamps[1]))
    found = Clock.of(folder)
    assert found == Clock(since=created - 1000 - 800, twice=((created - 200, created + 500),))


def test_output_before_its_commit_is_right() -> None:
    assert _ahead(_batched()) == []
    assert _ahead(_batched(), {7: 200}) == [], "the same moment is not later"


def test_output_after_its_commit_is_named() -> None:
    assert _ahead(_batched(), {7: 201, 14: 301}) == [(0, 7), (0, 14)]


def test_a_commit_that_reaches_beyond_its_batch_is_ahead_of_the_next() -> None:
    assert _ahead(_batched(), progress=[_line(0, 0, 6, at_ms=100), *COMMITS[1:]]) == [(0, 5)]


def test_the_first_copy_counts() -> None:
    histories = _batched()
    histories.double([(0, 3)])
    assert _ahead(histories, {15: 900}) == []


def test_what_was_never_delivered_is_lost_and_not_ahead() -> None:
    histories = _batched()
    histories.drop([(0, 3)])
    assert _ahead(histories) == []


def test_a_start_is_not_compared_with_the_report_of_an_earlier_one() -> None:
    histories = _batched()
    for sequence in range(5):
        histories.change((0, sequence), start=2)
    again = _line(0, 0, 5, start=2, at_ms=500)
    assert _ahead(histories, dict.fromkeys(range(5), 450), [*COMMITS[:1], again]) == []
    assert _ahead(histories, {3: 501}, [*COMMITS[:1], again]) == [(0, 3)]


def test_copies_that_do_not_say_their_start_are_compared_with_every_report() -> None:
    histories = Histories(_batched().sent, [replace(copy, start=None) for copy in _batched().delivered])
    assert _ahead(histories, {7: 201}) == [(0, 7)]


def test_nothing_delivered_and_nothing_reported_is_clean() -> None:
    assert _ahead(Histories()) == []
    assert _ahead(_batched(), progress=[]) == []
    assert _torn(Histories()) == []
    assert _out_of_order(Histories([], [Copy(None, None, None, 0, 0)])) == []
