"""The plan of a run comes from the experiment and its seed alone, and every injection strikes inside its phase."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from chaos.experiment import MAX_SEED, BadInput, Experiment, FaultSpec, Workload
from chaos.faults import FAULTS
from chaos.schedule import LATEST_IMPACT_SHARE, MIN_BATCHES, Schedule, plan
from pipelines.strategies import STRATEGIES

SEEDS = st.integers(0, MAX_SEED)
STRATEGY = "postgres_two_phase_commit"  # nearly every fault can strike its jobs


def strikes(fault: str, strategy: str) -> bool:
    try:
        FAULTS[fault].check(strategy, {})
    except ValueError:
        return False
    return True


FAULT_NAMES = st.sampled_from(sorted(fault for fault in FAULTS if strikes(fault, STRATEGY)))
SPECS = st.builds(FaultSpec, fault=FAULT_NAMES, at=st.none() | st.floats(0.05, 0.9))


def experiment(*faults: FaultSpec, **fields: Any) -> Experiment:
    return Experiment(**{"strategy": STRATEGY, "faults": list(faults), "seed": 1, **fields})


@given(SEEDS, st.lists(SPECS, max_size=6), st.integers(100, 50_000))
def test_every_plan_is_possible_or_refused(seed: int, specs: list[FaultSpec], batch: int) -> None:
    found = experiment(*specs, seed=seed, batch_records=batch)
    try:
        schedule = plan(found)
    except BadInput:
        assume(False)
    shares = [injection.at for injection in schedule.injections]
    assert shares == sorted(shares)
    assert all(schedule.steady_share < share < schedule.impact_share for share in shares)
    assert 0 < schedule.steady_share < schedule.impact_share <= LATEST_IMPACT_SHARE
    assert len({injection.injection for injection in schedule.injections}) == len(specs)


@given(SEEDS, st.lists(FAULT_NAMES, max_size=3))
def test_the_same_seed_gives_the_same_bytes(seed: int, faults: list[str]) -> None:
    found = experiment(*(FaultSpec(fault=fault) for fault in faults), seed=seed, batch_records=100)
    assert plan(found).to_json() == plan(Experiment.model_validate(found.model_dump())).to_json()


@given(SEEDS, st.lists(FAULT_NAMES, max_size=3))
def test_a_schedule_is_read_back_as_it_was_written(seed: int, faults: list[str]) -> None:
    schedule = plan(experiment(*(FaultSpec(fault=fault) for fault in faults), seed=seed, batch_records=100))
    assert Schedule.from_json(schedule.to_json()) == schedule


def test_another_seed_gives_another_plan() -> None:
    assert len({plan(experiment(FaultSpec(fault="kill_executor"), seed=seed)).to_json() for seed in range(20)}) == 20


@given(SEEDS)
def test_a_share_that_is_given_is_kept_and_does_not_move_what_is_drawn(seed: int) -> None:
    drawn = plan(experiment(FaultSpec(fault="kill_executor"), FaultSpec(fault="network_latency"), seed=seed, batch_records=100))
    mixed = plan(experiment(FaultSpec(fault="kill_executor", at=0.33), FaultSpec(fault="network_latency"), seed=seed, batch_records=100))
    latency = next(each for each in drawn.injections if each.fault == "network_latency")
    assert latency in mixed.injections
    assert next(each.at for each in mixed.injections if each.fault == "kill_executor") == 0.33


def test_injections_are_numbered_by_fault_and_their_parameters_are_complete() -> None:
    schedule = plan(
        experiment(*(FaultSpec(fault=name) for name in ("kill_executor", "kill_executor", "network_latency")), batch_records=100)
    )
    assert {each.injection for each in schedule.injections} == {"kill_executor-1", "kill_executor-2", "network_latency-1"}
    for each in schedule.injections:
        assert set(each.parameters) == set(FAULTS[each.fault].parameters_model.model_fields)


@pytest.mark.parametrize("seed", range(0, 2000, 97))
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_alone_fits_into_a_run_of_the_default_size(fault: str, seed: int) -> None:
    strategy = next(each for each in (STRATEGY, *STRATEGIES) if strikes(fault, each))
    assert len(plan(experiment(FaultSpec(fault=fault), strategy=strategy, seed=seed)).injections) == 1


def test_without_a_fault_there_are_still_three_phases() -> None:
    schedule = plan(experiment())
    assert (schedule.steady_share, schedule.impact_share, schedule.injections) == (0.2, 0.75, ())


def test_too_few_batches_are_refused_with_the_number_that_fits() -> None:
    found = experiment(workload=Workload(records=1000), batch_records=126)
    with pytest.raises(BadInput, match=f"batch_records: 1000 records .* fewer than {MIN_BATCHES} batches.* at most 125"):
        plan(found)
    assert plan(experiment(workload=Workload(records=1000), batch_records=125))


def test_faults_that_cannot_show_their_evidence_before_the_end_are_refused() -> None:
    with pytest.raises(BadInput, match="faults: network_latency-1 need records up to"):
        plan(experiment(FaultSpec(fault="network_latency", at=0.9)))
