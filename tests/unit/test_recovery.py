"""How a job comes back, measured: hand-made histories whose figures can be told by looking at them, and what holds for any history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamproof.evidence.folder import EvidenceError
from streamproof.evidence.journal import DriverReady, PhaseBegan
from streamproof.evidence.outcome import Outcome
from streamproof.verdict.judge import judge
from streamproof.verdict.scan.scan import read_flow
from streamproof.verdict.timing import recovery
from streamproof.verdict.timing.recovery import Flow, Stamps
from tests.support.histories import INJECTION, SPEC, Copy, Histories, Record, Story, at

NONE = np.array([], np.int64)


def _flow(
    sent_at: list[int],
    copies: list[tuple[int, int]],
    ends: Sequence[int] = (),
    kind: Stamps = Stamps.VISIBLE,
    **settled: Outcome,
) -> Flow:
    """Record n was sent at ``sent_at[n]``; ``copies`` are (record, delivered_at); ``settled`` are outcomes, r3=... of record 3."""
    outcomes = [settled.get(f"r{number}", Outcome.ACKED) for number in range(len(sent_at))]
    history = Histories(
        [Record(0, number, 0, number, outcome) for number, outcome in enumerate(outcomes)],
        [Copy(0, number, 0, 0, place) for place, (number, _) in enumerate(copies)],
    )
    sent, delivered = history.columns()
    stamps = np.array([stamp for _, stamp in copies], np.int64)
    return recovery.flow(sent, np.array(sent_at, np.int64), delivered, stamps, np.array(ends, np.int64), kind)


# --- when a record is output --------------------------------------------------------------------------------------------------------


def test_a_visible_stamp_is_the_moment_of_output() -> None:
    assert _flow([0, 0], [(0, 10), (1, 30)], ends=[100]).visible.tolist() == [10, 30]


def test_what_was_written_is_output_when_its_batch_ended() -> None:
    found = _flow([0, 0, 0], [(0, 10), (1, 30), (2, 31)], ends=[30, 50], kind=Stamps.WRITTEN)
    assert found.visible.tolist() == [30, 30, 50]
    assert found.written.tolist() == [10, 30, 31]


def test_what_was_written_after_the_last_end_counts_as_it_was_written() -> None:
    assert _flow([0, 0], [(0, 10), (1, 70)], ends=[50], kind=Stamps.WRITTEN).visible.tolist() == [50, 70]
    assert _flow([0], [(0, 10)], kind=Stamps.WRITTEN).visible.tolist() == [10]


def test_a_second_copy_is_no_new_output() -> None:
    assert _flow([0], [(0, 90), (0, 20), (0, 50)]).visible.tolist() == [20]


def test_a_record_that_nobody_sent_is_no_output_and_one_that_cannot_be_read_is_none_either() -> None:
    sent, delivered = Histories([Record(0, 0, 0, 0)], [Copy(0, 7, 0, 0, 0), Copy(None, None, None, 0, 1), Copy(0, 0, 0, 0, 2)]).columns()
    found = recovery.flow(sent, np.array([0]), delivered, np.array([10, 20, 30]), NONE, Stamps.VISIBLE)
    assert found.visible.tolist() == [30]


def test_a_ready_driver_decides_what_earlier_starts_left() -> None:
    events = [PhaseBegan(at=at(1), phase="steady"), DriverReady(at=at(7), start=1)]
    found = recovery.ends(events, [{"committed_at": at(9)}, {"committed_at": at(4)}])
    assert found.tolist() == [recovery.milliseconds(at(second)) for second in (4, 7, 9)]


def test_empty_histories_have_no_figures() -> None:
    found = _flow([], [])
    assert recovery.recovery(found, 10, 20) == recovery.Recovery(None, 0.0, 0, None)
    assert recovery.longest_gap(found.moments) is None
    assert recovery.throughput(found, 0, 1000) == (0, None)


# --- one injection ------------------------------------------------------------------------------------------------------------------


def test_first_output_is_the_first_that_was_made_after_the_fault() -> None:
    # Written before the fault at 1000, visible after it: was under way.
    found = _flow([0] * 3, [(0, 900), (1, 1100), (2, 5000)], ends=[1200, 3500, 6000], kind=Stamps.WRITTEN)
    assert recovery.recovery(found, 1000, 1150).first_output_s == 0.2
    found = _flow([0] * 2, [(0, 900), (1, 3000)], ends=[1200, 3500], kind=Stamps.WRITTEN)
    assert recovery.recovery(found, 1000, 1150).first_output_s == 2.5


def test_the_backlog_is_gone_when_all_that_was_sent_before_the_heal_is_output() -> None:
    # Struck at 1000, healed at 2000; record 3 is sent later and does not count.
    found = _flow([500, 900, 1500, 2500], [(0, 600), (1, 2200), (2, 4000), (3, 9000)])
    assert recovery.recovery(found, 1000, 2000) == recovery.Recovery(1.2, 3.0, 2, 1.8)


def test_a_fault_that_left_no_backlog_is_caught_up_at_once() -> None:
    found = _flow([500, 2500], [(0, 600), (1, 3000)])
    assert recovery.recovery(found, 1000, 2000) == recovery.Recovery(2.0, 0.0, 0, 2.4)


def test_nobody_waits_for_what_was_not_acknowledged_or_is_lost() -> None:
    found = _flow([0, 0, 0], [(0, 1100), (1, 8000)], r1=Outcome.INDETERMINATE)  # record 2 is lost
    assert recovery.recovery(found, 1000, 2000).caught_up_s == 0.1
    assert found.visible.tolist() == [1100, 8000], "but what is delivered is output"


def test_what_did_not_happen_has_no_figure() -> None:
    found = _flow([0, 0], [(0, 1000), (1, 1500)])
    assert recovery.recovery(found, None, None) == recovery.Recovery()
    assert recovery.recovery(found, 1200, None) == recovery.Recovery(0.3, None, None, 0.5)
    assert recovery.recovery(found, 1600, 1700).first_output_s is None


@pytest.mark.parametrize(
    ("since", "until", "gap"),
    [(None, None, 4.0), (0, 1500, 1.0), (1500, 2500, 3.0), (1000, 2000, 1.0), (5001, 5002, 4.0), (9000, None, None)],
)
def test_the_longest_gap_is_the_longest_of_those_that_touch_the_time(since: int | None, until: int | None, gap: float | None) -> None:
    assert recovery.longest_gap(np.array([0, 1000, 2000, 5000, 9000]), since, until) == gap


# --- phases -------------------------------------------------------------------------------------------------------------------------


def test_a_phase_counts_its_records_and_its_rate_from_the_first_output_on() -> None:
    found = _flow([0] * 6, [(0, 6000), (1, 6000), (2, 8000), (3, 10000), (4, 12000), (5, 12000)])
    # The job took six seconds to its first output: they are no part of its rate, and neither is that output.
    assert recovery.throughput(found, 0, 10_000) == (3, 0.2)
    assert recovery.throughput(found, 10_000, 13_000) == (3, 1.0)
    assert recovery.throughput(found, 0, 7000) == (2, None)
    assert recovery.throughput(found, 13_000, 14_000) == (0, None)
    assert recovery.throughput(found, 0, 5000) == (0, None)


def test_the_backlog_is_what_was_sent_and_is_not_output() -> None:
    found = _flow([0, 100, 200], [(0, 150), (1, 400), (2, 250)])
    assert found.backlog(np.array([-1, 0, 100, 150, 200, 250, 400])).tolist() == [0, 1, 2, 1, 2, 1, 0]


# --- for any history ----------------------------------------------------------------------------------------------------------------

TIMES = st.integers(0, 5000)
HISTORIES = st.lists(st.tuples(TIMES, st.lists(st.integers(0, 5000), max_size=3)), max_size=25)


def _any(history: list[tuple[int, list[int]]], ends: list[int], kind: Stamps) -> Flow:
    copies = [(number, sent + later) for number, (sent, delays) in enumerate(history) for later in delays]
    return _flow([sent for sent, _ in history], copies, sorted(set(ends)), kind)


@given(HISTORIES, st.lists(st.integers(0, 12_000), max_size=8), st.sampled_from(Stamps), TIMES, st.integers(0, 3000))
def test_of_any_history_the_figures_fit_each_other(
    history: list[tuple[int, list[int]]], ends: list[int], kind: Stamps, injected: int, healing: int
) -> None:
    found = _any(history, ends, kind)
    healed = injected + healing
    cost = recovery.recovery(found, injected, healed)
    assert (found.visible >= found.written).all()
    assert len(found.visible) == sum(bool(delays) for _, delays in history)
    assert cost.caught_up_s is not None
    waiting = sum(bool(delays) for sent, delays in history if sent <= healed) - int((found.shown[found.sent <= healed] <= healed).sum())
    assert cost.backlog_records == waiting
    assert (cost.caught_up_s > healing / 1000) == (waiting > 0)
    if cost.longest_gap_s is not None:
        assert cost.longest_gap_s <= (recovery.longest_gap(found.moments) or 0)
    if cost.first_output_s is not None:
        assert cost.first_output_s >= 0
        assert injected + round(cost.first_output_s * 1000) in found.visible.tolist()
    every = np.arange(-1, 16_000, 37)
    assert (found.backlog(every) >= 0).all()
    assert found.backlog(np.array([30_000])).tolist() == [0], "in the end nothing is left that was delivered"


@given(HISTORIES, st.lists(st.integers(0, 12_000), max_size=8), st.integers(0, 12_000), st.integers(0, 12_000))
def test_phases_that_follow_each_other_count_every_record_once(
    history: list[tuple[int, list[int]]], ends: list[int], one: int, two: int
) -> None:
    found = _any(history, ends, Stamps.WRITTEN)
    first, second = sorted((one, two))
    borders = [0, first, second, 30_000]
    counted = [recovery.throughput(found, *borders[number : number + 2])[0] for number in range(3)]
    assert sum(counted) == len(found.visible)


@given(HISTORIES, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_changes_nothing(history: list[tuple[int, list[int]]], random: Any) -> None:
    copies = [(number, sent + later) for number, (sent, delays) in enumerate(history) for later in delays]
    shuffled = random.sample(copies, len(copies))
    times = [sent for sent, _ in history]
    one, two = _flow(times, copies), _flow(times, shuffled)
    assert np.array_equal(one.visible, two.visible)
    assert recovery.recovery(one, 1000, 2000) == recovery.recovery(two, 1000, 2000)


# --- from a folder ------------------------------------------------------------------------------------------------------------------


def test_a_folder_gives_the_flow_that_its_verdict_is_made_of(tmp_path: Path) -> None:
    story = Story()
    story.histories.settle([(0, 59)], Outcome.INDETERMINATE)
    folder = story.write(tmp_path / "run")
    found = read_flow(folder)
    assert found.moments.tolist() == [recovery.milliseconds(at(second)) for second in (2, 4.5, 8, 10)]
    assert (found.records.sum(), found.waited.sum()) == (60, 59)
    verdict = judge(folder, SPEC).verdict.to_json()
    (injection,) = verdict["injections"]
    assert injection["injection"] == INJECTION
    assert {key: injection[key] for key in ("first_output_s", "caught_up_s", "backlog_records", "longest_gap_s")} == {
        "first_output_s": 2.5,
        "caught_up_s": 2.5,
        "backlog_records": 11,
        "longest_gap_s": 3.5,
    }
    assert (verdict["recovery_s"], verdict["caught_up_s"], verdict["longest_gap_s"], verdict["output_s"]) == (2.5, 2.5, 3.5, 8.0)
    assert [phase["records_per_s"] for phase in verdict["phases"].values()] == [None, 6.0, 5.0]


def test_stamps_of_a_visible_moment_are_taken_as_they_are(tmp_path: Path) -> None:
    story = Story()
    story.drain["stamps"] = "visible"
    found = read_flow(story.write(tmp_path / "run"))
    assert found.moments.tolist() == [recovery.milliseconds(at(second)) for second in (1.9, 4.4, 7.9, 9.9)]


def test_stamps_that_nobody_knows_are_named(tmp_path: Path) -> None:
    story = Story()
    story.drain["stamps"] = "guessed"
    with pytest.raises(EvidenceError, match="stamps is 'guessed', expected one of visible, written"):
        read_flow(story.write(tmp_path / "run"))


def test_records_without_a_row_of_their_own_have_no_time_and_do_not_wait() -> None:
    sent, delivered = Histories([Record(0, 0, 0, 0), Record(0, 1, 0, 1)], [Copy(0, 0, 0, 0, 0), Copy(0, 1, 0, 0, 1)]).columns()
    unsettled = replace(sent, acked=np.array([True, False]))
    found = recovery.flow(unsettled, np.array([5]), delivered, np.array([10, 20]), NONE, Stamps.VISIBLE)
    assert (found.visible.tolist(), found.sent.tolist(), found.shown.tolist()) == ([10, 20], [5], [10])
