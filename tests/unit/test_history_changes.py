"""What a night changed, told from the nights before: each word means one thing, and no other word applies where it does."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamproof.history.changes import ALARMING, Bounds, Change, Kind, change, changes
from streamproof.history.record import Run
from tests.support.remembered import night, nights


def _kind(outcomes: str) -> Kind:
    return _change(nights(outcomes)).kind


def _change(history: list[Run]) -> Change:
    found = change(history)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("outcomes", "kind"),
    [
        ("P", Kind.NEW),
        ("F", Kind.NEWLY_BROKEN),
        ("I", Kind.NOT_SHOWN),
        ("PP", Kind.STABLE),
        ("PF", Kind.NEWLY_BROKEN),
        ("PFF", Kind.STILL_BROKEN),
        ("FP", Kind.FIXED),
        ("PFP", Kind.FIXED),
        ("PFFFP", Kind.FIXED),
        ("FPP", Kind.STABLE),
        ("PI", Kind.NOT_SHOWN),
        ("FE", Kind.NOT_SHOWN),
        ("PIP", Kind.STABLE),
        ("IP", Kind.NEW),
        ("IF", Kind.NEWLY_BROKEN),
        ("PIF", Kind.NEWLY_BROKEN),
        ("FIF", Kind.STILL_BROKEN),
        ("FIP", Kind.FIXED),
        ("PA", Kind.NEW),
        ("PPA", Kind.STABLE),
        ("FA", Kind.NEWLY_BROKEN),
        ("PAF", Kind.NEWLY_BROKEN),
        ("IA", Kind.NOT_SHOWN),
    ],
)
def test_the_newest_run_is_held_against_the_last_that_said_something(outcomes: str, kind: Kind) -> None:
    assert _kind(outcomes) is kind


@pytest.mark.parametrize("outcomes", ["", "A", "AAA"])
def test_a_cell_that_was_only_ever_stopped_has_no_change(outcomes: str) -> None:
    assert change(nights(outcomes)) is None


# --- flaky --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcomes", ["PFPF", "FPFP", "PPFFPPF", "PFPFF", "PFPFP", "PIFPAF"])
def test_an_outcome_that_goes_back_and_forth_three_times_is_flaky(outcomes: str) -> None:
    assert _kind(outcomes) is Kind.FLAKY


@pytest.mark.parametrize("outcomes", ["PFP", "FPF", "PPPFFFPPP", "PFPI", "FPFP" + "P" * 8])
def test_fewer_times_or_long_ago_is_not(outcomes: str) -> None:
    assert _kind(outcomes) is not Kind.FLAKY


@pytest.mark.parametrize("fields", [{"seed": 8}, {"versions": {"pyspark": "4.1.4"}}, {"settings": {"brokers": 3}}])
def test_what_something_known_explains_is_not_flaky(fields: dict[str, object]) -> None:
    history = nights("PFPF")
    assert _change(history).kind is Kind.FLAKY
    explained = [replace(run, **fields) if run.outcome == "FAILED" else run for run in history]  # type: ignore[arg-type]
    assert _change(explained).kind is Kind.NEWLY_BROKEN


def test_a_setting_that_older_runs_did_not_know_explains_nothing() -> None:
    history = nights("PFPF")
    history[0] = replace(history[0], settings={name: value for name, value in history[0].settings.items() if name != "brokers"})
    assert _change(history).kind is Kind.FLAKY


# --- slower -------------------------------------------------------------------------------------------------------------------------


def _timed(*seconds: float | None, **fields: object) -> list[Run]:
    return [night(number, recovery_s=value, caught_up_s=None, **fields) for number, value in enumerate(seconds)]


@pytest.mark.parametrize("seconds", [(2.0, 2.0, 2.0, 3.1), (1.0, 2.0, 9.0, 3.1), (0.1, 0.1, 0.1, 1.2), (10.0, 10.0, 10.0, 15.1)])
def test_a_recovery_above_the_median_by_the_factor_and_by_the_margin_is_slower(seconds: tuple[float, ...]) -> None:
    found = _change(_timed(*seconds))
    assert found.kind is Kind.SLOWER
    assert [each.figure for each in found.slower] == ["recovery_s"]


@pytest.mark.parametrize(
    ("seconds", "why"),
    [
        ((2.0, 2.0, 2.0, 3.0), "at the bounds, not above"),
        ((0.1, 0.1, 0.1, 1.0), "ten times the median, but within the margin"),
        ((10.0, 10.0, 10.0, 14.9), "above the margin, but within the factor"),
        ((2.0, 2.0, 9.0), "two runs make no median"),
        ((2.0, None, None, 9.0), "one known time makes no median"),
        ((2.0, 2.0, 2.0, None), "not measured"),
        ((9.0, 9.0, 9.0, 1.0), "faster"),
    ],
)
def test_within_the_bounds_it_is_stable(seconds: tuple[float | None, ...], why: str) -> None:
    assert _change(_timed(*seconds)).kind is Kind.STABLE, why


def test_the_time_until_it_was_caught_up_is_held_to_its_own_median() -> None:
    found = _change([*nights("PPP"), night(3, caught_up_s=30.0)])
    assert [(each.figure, each.seconds, each.usual_s) for each in found.slower] == [("caught_up_s", 30.0, 3.0)]
    assert "30.0 s until the end of its backlog, 3.0 s as a rule" in found.reason


def test_only_passed_runs_with_the_same_settings_are_a_measure() -> None:
    other = {"brokers": 3}
    slow = night(9, recovery_s=9.0)
    assert _change([*nights("PPP"), slow]).kind is Kind.SLOWER
    assert _change([*nights("PPP", settings=other), slow]).kind is Kind.STABLE
    assert _change([night(0), night(1), night(2, "I"), slow]).kind is Kind.STABLE


def test_another_version_is_what_it_may_be_slower_for() -> None:
    found = _change([*nights("PPP"), night(9, recovery_s=9.0, versions={"pyspark": "4.2.0", "kafka": "4.1.0"})])
    assert found.kind is Kind.SLOWER
    assert "changed: pyspark 4.1.3 to 4.2.0" in found.reason


def test_a_time_that_stays_becomes_the_rule() -> None:
    history = _timed(*[2.0] * 10, *[9.0] * 10)
    told = [_change(history[: number + 1]).kind for number in range(10, 20)]
    assert told[:5] == [Kind.SLOWER] * 5
    assert told[6:] == [Kind.STABLE] * 4


def test_a_run_that_is_broken_is_not_called_slow() -> None:
    assert _change([*nights("PPP"), night(3, "F", recovery_s=60.0)]).kind is Kind.NEWLY_BROKEN
    assert _change([*nights("PPF"), night(3, recovery_s=60.0)]).kind is Kind.FIXED


def test_the_bounds_can_be_set() -> None:
    slow = [*nights("PPP"), night(3, recovery_s=2.5)]
    found = change(slow, Bounds(factor=1.1, margin_s=0.1))
    assert (_change(slow).kind, found and found.kind) == (Kind.STABLE, Kind.SLOWER)


# --- what it says -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcomes", "since", "before"),
    [("PPP", 0, 1), ("PPF", 2, 1), ("PFF", 1, 1), ("FPAP", 1, 1), ("PIE", 1, 0), ("PIP", 2, 0), ("FFA", 0, 0)],
)
def test_a_change_names_when_the_state_began_and_the_run_before(outcomes: str, since: int, before: int) -> None:
    found = _change(nights(outcomes))
    assert found.since.run == f"night-{since}"
    assert found.before is not None
    assert found.before.run == f"night-{before}"


def test_a_run_that_broke_says_how_since_when_and_what_had_changed() -> None:
    found = _change([night(0), night(1, "F"), night(2, "F", seed=8)])
    assert found.reason == "FAILED since night-1: two_phase_commit broke exactly-once: 3 LOST (changed: seed 7 to 8)"


def test_each_cell_is_told_once_the_worst_first() -> None:
    stable = [replace(run, strategy="checkpoint") for run in nights("PP")]
    broken = [replace(run, strategy="at_most_once") for run in nights("PF")]
    stopped = [replace(run, strategy="file_sink") for run in nights("A")]
    found = changes([*stable, *stopped, *reversed(broken)])
    assert [(each.cell.strategy, each.kind) for each in found] == [("at_most_once", Kind.NEWLY_BROKEN), ("checkpoint", Kind.STABLE)]


# --- for any history ----------------------------------------------------------------------------------------------------------------

OUTCOMES = st.text("PFIEA", min_size=1, max_size=14)


@given(OUTCOMES)
def test_of_any_history_the_word_fits_the_newest_run(outcomes: str) -> None:
    counted = outcomes.replace("A", "")
    found = change(nights(outcomes))
    if not counted:
        assert found is None
        return
    assert found is not None
    says = [each for each in counted if each in "PF"]
    switches = sum(one != other for one, other in pairwise(says[-10:]))
    if counted[-1] in "IE":
        assert found.kind is Kind.NOT_SHOWN
    elif switches >= 3:
        assert found.kind is Kind.FLAKY
    elif counted[-1] == "F":
        assert found.kind is (Kind.STILL_BROKEN if says[-2:-1] == ["F"] else Kind.NEWLY_BROKEN)
    else:
        assert found.kind is {"": Kind.NEW, "F": Kind.FIXED, "P": Kind.STABLE}["".join(says[-2:-1])]
    assert (found.kind in ALARMING) == (counted[-1] != "P" or found.kind is Kind.FLAKY)


@given(OUTCOMES, st.data())
def test_runs_that_were_stopped_change_nothing(outcomes: str, data: st.DataObject) -> None:
    history = nights(outcomes.replace("A", "P"))
    at = data.draw(st.integers(0, len(history)))
    with_stopped = [*history[:at], night(99, "A"), *history[at:]]
    assert change(with_stopped) == change(history)


@given(OUTCOMES, st.randoms())
def test_the_order_in_which_runs_are_handed_over_changes_nothing(outcomes: str, random: object) -> None:
    history = [*nights(outcomes), *nights(outcomes, strategy="checkpoint")]
    shuffled = list(history)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert changes(shuffled) == changes(history)


@given(st.lists(st.floats(0.01, 100), min_size=3, max_size=15), st.floats(0.01, 100), st.floats(0, 50))
def test_who_is_slower_stays_so_when_it_takes_longer_still(earlier: list[float], newest: float, more: float) -> None:
    if _change(_timed(*earlier, newest)).kind is Kind.SLOWER:
        assert _change(_timed(*earlier, newest + more)).kind is Kind.SLOWER


@given(st.lists(st.floats(0.01, 100), min_size=3, max_size=10))
def test_a_time_as_long_as_one_of_the_middle_is_never_slower(earlier: list[float]) -> None:
    middle = sorted(earlier)[(len(earlier) - 1) // 2]
    assert _change(_timed(*earlier, middle)).kind is Kind.STABLE
