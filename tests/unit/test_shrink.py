"""The search for the smallest schedule that fails: it finds it, asks nothing twice, and keeps each fault's moment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamproof.errors import BadInput
from streamproof.evidence.folder import RunFolder
from streamproof.experiment.model import Experiment, FaultSpec, Phase, Random
from streamproof.experiment.schedule import plan
from streamproof.load.spec import Workload
from streamproof.run import runner, shrink
from streamproof.run.shrink import reduced, smallest
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.guarantee import Guarantee
from tests.support.histories import SPEC, unjudged

STRATEGY = "postgres_two_phase_commit"
SPECS = st.builds(
    lambda fault, trigger: FaultSpec(fault=fault, **trigger),
    st.sampled_from(["kill_driver", "network_latency", "cut_postgres", "add_partitions"]),
    st.one_of(
        st.just({}),
        st.fixed_dictionaries({"at": st.floats(0.05, 0.6)}),
        st.fixed_dictionaries({"batch": st.integers(5, 50)}),
        st.just({"step": "after_decision"}),
    ),
)


def experiment(*faults: FaultSpec, **fields: Any) -> Experiment:
    known = {"strategy": STRATEGY, "batch_records": 200, "seed": 1, "faults": list(faults)}
    return Experiment(**{**known, **fields})


# --- the search ---------------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 12), st.data())
def test_the_items_that_it_takes_are_found_and_no_other(count: int, data: st.DataObject) -> None:
    items = [f"fault-{number}" for number in range(count)]
    guilty = data.draw(st.sets(st.sampled_from(items), min_size=1))
    asked: list[tuple[str, ...]] = []

    def fails(kept: Sequence[str]) -> bool:
        asked.append(tuple(kept))
        return guilty <= set(kept)

    assert set(smallest(items, fails)) == guilty
    assert len(set(asked)) == len(asked), "nothing is asked twice"
    assert tuple(items) not in asked, "that all of them fail is known"
    assert len(asked) <= 1 + count * count + 3 * count, "ddmin's own bound"


@given(st.integers(1, 7), st.data())
def test_whatever_fails_by_chance_the_end_fails_and_no_single_item_can_go(count: int, data: st.DataObject) -> None:
    """Also where more faults may hide what fewer show."""
    answers: dict[tuple[int, ...], bool] = {tuple(range(count)): True}

    def fails(kept: Sequence[int]) -> bool:
        return answers.setdefault(tuple(kept), data.draw(st.booleans()))

    found = tuple(smallest(range(count), fails))
    assert answers[found]
    assert not any(answers.get(tuple(item for item in found if item != left), False) for left in found)


def test_what_fails_without_any_item_is_found_at_once() -> None:
    asked: list[Sequence[int]] = []
    assert smallest([1, 2, 3], lambda kept: not asked.append(kept)) == []  # type: ignore[func-returns-value]
    assert asked == [[]]


# --- smaller experiments ------------------------------------------------------------------------------------------------------------


@given(st.lists(SPECS, min_size=1, max_size=4), st.integers(0, 1000))
def test_with_all_faults_kept_the_plan_is_the_same(specs: list[FaultSpec], seed: int) -> None:
    found = experiment(*specs, seed=seed)
    try:
        schedule = plan(found)
    except BadInput:
        return
    moments = [(each.fault, each.at, each.batch, each.step) for each in schedule.injections if each.step is None]
    again = plan(reduced(found, schedule.injections, schedule.injections))
    assert [(each.fault, each.at, each.batch, each.step) for each in again.injections if each.step is None] == moments
    assert [each.fault for each in again.injections if each.step is not None] == [
        each.fault for each in schedule.injections if each.step is not None
    ]


@given(st.integers(0, 200), st.data())
def test_of_a_random_schedule_any_part_can_be_run_at_the_same_moments(seed: int, data: st.DataObject) -> None:
    found = Experiment(strategy=STRATEGY, random=Random(overlaps=True), seed=seed)
    injections = plan(found).injections
    kept = [each for each in injections if data.draw(st.booleans())]
    smaller = reduced(found, injections, kept)
    assert Experiment.model_validate(smaller.model_dump()) == smaller
    assert [(each.fault, each.at, each.parameters) for each in plan(smaller).injections] == [
        (each.fault, each.at, each.parameters) for each in kept
    ]
    assert (smaller.seed, smaller.micro_batch, smaller.quiet_between) == (found.seed, found.micro_batch, found.quiet_between)


def test_who_overlapped_a_fault_that_is_left_out_takes_its_moment() -> None:
    latency = FaultSpec(fault="network_latency", batch=30)
    found = experiment(latency, FaultSpec(fault="kill_driver", overlaps=True), FaultSpec(fault="add_partitions", overlaps=True))
    first, *others = plan(found).injections
    (driver, partitions) = reduced(found, (first, *others), others).faults
    assert (driver.fault, driver.batch, driver.overlaps) == ("kill_driver", 30, False)
    assert (partitions.fault, partitions.batch, partitions.overlaps) == ("add_partitions", None, True)


def test_a_fault_of_the_recovery_phase_stays_there() -> None:
    found = experiment(FaultSpec(fault="kill_driver", at=0.3), FaultSpec(fault="pause_kafka", phase=Phase.RECOVERY))
    injections = plan(found).injections
    (spec,) = reduced(found, injections, injections[1:]).faults
    assert (spec.fault, spec.phase, spec.at) == ("pause_kafka", Phase.RECOVERY, None)


def test_a_smaller_experiment_need_not_show_what_the_whole_was_to_show() -> None:
    found = experiment(FaultSpec(fault="kill_driver"), guarantee=Guarantee.AT_LEAST_ONCE, expect=[Anomaly.DUPLICATED], name="x" * 60)
    smaller = reduced(found, plan(found).injections, ())
    assert (smaller.expect, smaller.guarantee, smaller.faults) == ([], Guarantee.AT_LEAST_ONCE, [])
    assert smaller.name == "x" * 52 + "-smaller"


def test_a_workload_that_is_barely_large_enough_can_be_made_smaller_too() -> None:
    found = Experiment(strategy=STRATEGY, workload=Workload(records=100), faults=[FaultSpec(fault="kill_driver")], seed=1)
    assert reduced(found, plan(found).injections, ()).batch_records == 10


# --- tries --------------------------------------------------------------------------------------------------------------------------


def subject(*kinds: Anomaly) -> shrink.Subject:
    found = experiment(*(FaultSpec(fault=name) for name in ("kill_driver", "network_latency", "add_partitions")))
    return shrink.Subject(found, plan(found).injections, frozenset(kinds))


@pytest.mark.parametrize(
    ("outcome", "anomalies", "fails"),
    [
        ("FAILED", {"LOST": 3, "DUPLICATED": 1}, True),
        ("FAILED", {"LOST": 3}, True),
        ("FAILED", {"DUPLICATED": 3}, False),
        ("PASSED", {}, False),
    ],
)
def test_a_try_fails_in_the_same_way_when_it_shows_the_same_anomalies(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, outcome: str, anomalies: dict[str, int], fails: bool
) -> None:
    _runs_end(tmp_path, monkeypatch, (outcome, anomalies))
    found = subject(Anomaly.LOST)
    made = shrink.attempt(found, found.injections[:1])
    assert (made.fails, made.outcome, len(made.folders)) == (fails, outcome, 1)


def test_a_try_that_says_nothing_is_made_once_more(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _runs_end(tmp_path, monkeypatch, ("INCONCLUSIVE", {}), ("FAILED", {"LOST": 1}))
    found = subject(Anomaly.LOST)
    made = shrink.attempt(found, found.injections[:1])
    assert (made.fails, len(made.folders)) == (True, 2)


def test_a_try_that_is_stopped_ends_the_search(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _runs_end(tmp_path, monkeypatch, ("ABORTED", {}))
    with pytest.raises(shrink.Stopped, match="because"):
        shrink.attempt(subject(Anomaly.LOST), ())


def _runs_end(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, *ends: tuple[str, dict[str, int]]) -> None:
    """Runs leave these verdicts, one after the other; what a run does is not looked at here."""
    left = list(ends)

    def run(found: Experiment, **options: Any) -> RunFolder:
        outcome, anomalies = left.pop(0)
        folder = RunFolder.create(tmp_path / f"run-{len(left)}")
        verdict = {**unjudged(SPEC, RunOutcome(outcome), "because"), "anomalies": anomalies}
        folder.verdict.write_text(json.dumps(verdict))
        return folder

    monkeypatch.setattr(runner, "run", run)
