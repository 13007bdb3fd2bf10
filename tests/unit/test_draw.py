"""Random schedules come from the seed alone, can always be run, and never ask for an anomaly."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from streamproof.engines.spark.registry import STRATEGIES
from streamproof.engines.spark.spec import profile
from streamproof.errors import BadInput
from streamproof.experiment import overlap
from streamproof.experiment.model import MAX_SEED, Experiment, FaultSpec, Phase, Random
from streamproof.experiment.room import LATEST_IMPACT_SHARE, Room
from streamproof.experiment.schedule import Schedule, plan
from streamproof.faults import FAULTS
from streamproof.load.spec import Workload
from tests.support.checkout import ROOT

SEEDS = st.integers(0, MAX_SEED)
MATTER_MOST = ("two_phase_commit", "postgres_ledger")
PRINTS = """
import sys
from streamproof.experiment.model import Experiment, Random
from streamproof.experiment.schedule import plan
for seed in range(1, 21):
    print(plan(Experiment(strategy=sys.argv[1], random=Random(overlaps=True), seed=seed)).to_json())
"""


def drawn(strategy: str = "two_phase_commit", seed: int = 1, fields: dict[str, Any] | None = None, **wanted: Any) -> Experiment:
    return Experiment.model_validate({"strategy": strategy, "random": wanted, "seed": seed, **(fields or {})})


def names(schedule: Schedule) -> list[str]:
    return [injection.fault for injection in schedule.injections]


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("strategy", MATTER_MOST)
def test_each_of_a_hundred_seeds_gives_a_plan_that_can_be_run_and_always_the_same_bytes(strategy: str, overlaps: bool) -> None:
    for seed in range(1, 101):
        found = drawn(strategy, seed, overlaps=overlaps)
        schedule = plan(found)
        assert schedule.to_json() == plan(Experiment.model_validate(found.model_dump())).to_json()
        assert len(schedule.injections) == 6
        assert 0.05 <= schedule.steady_share < schedule.injections[0].at
        assert schedule.impact_share <= LATEST_IMPACT_SHARE
        for injection in schedule.injections:
            FAULTS[injection.fault].check(profile(strategy), injection.parameters)
            assert FAULTS[injection.fault].provokes(profile(strategy), injection.parameters) == []
        for group in schedule.groups(Phase.IMPACT):
            assert overlap.conflict(group) is None


def test_another_process_with_another_hash_seed_gives_the_same_bytes() -> None:
    def printed(hash_seed: str) -> str:
        command = [sys.executable, "-c", PRINTS, "two_phase_commit"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout

    here = "".join(f"{plan(drawn(seed=seed, overlaps=True)).to_json()}\n" for seed in range(1, 21))
    assert printed("1") == printed("2") == here


def test_another_seed_gives_another_plan() -> None:
    assert len({plan(drawn(seed=seed)).to_json() for seed in range(50)}) == 50


@given(
    st.sampled_from(sorted(STRATEGIES)),
    SEEDS,
    st.integers(1, 12),
    st.floats(0, 0.05) | st.sampled_from(["0.5s", "5s", "60s"]),
    st.booleans(),
    st.integers(2_000, 200_000),
)
def test_any_random_experiment_of_moderate_quiet_can_be_planned(
    strategy: str, seed: int, count: int, quiet: float | str, overlaps: bool, records: int
) -> None:
    found = drawn(strategy, seed, {"workload": {"records": records}}, count=count, quiet=quiet, overlaps=overlaps)
    assume(count * Room(records, found.micro_batch, quiet).quiet_share <= 0.2)  # one that is long may be refused
    schedule = plan(found)
    assert len(schedule.injections) == count
    assert schedule.quiet == quiet
    assert all(injection.phase is Phase.IMPACT for injection in schedule.injections)


@given(SEEDS, st.floats(0, 0.05))
def test_between_two_faults_there_is_room_for_the_evidence_and_the_quiet(seed: int, quiet: float) -> None:
    found = drawn(seed=seed, count=5, quiet=quiet)
    room = Room(found.workload.records, found.micro_batch, quiet)
    for one, other in pairwise(plan(found).injections):
        assert other.at - one.at >= room.share(one.fault, one.parameters) + quiet - 0.0011


@given(SEEDS)
def test_no_fault_comes_twice_before_each_came_once(seed: int) -> None:
    known = ["kill_driver", "kill_executor", "add_partitions"]
    found = names(plan(drawn(seed=seed, count=6, faults=known)))
    assert sorted(found[:3]) == sorted(found[3:]) == sorted(known)


@given(SEEDS)
def test_what_is_drawn_written_down_as_a_list_is_the_same_plan(seed: int) -> None:
    found = drawn(seed=seed, overlaps=True)
    schedule = plan(found)
    listed = [
        FaultSpec(fault=each.fault, at=None if each.overlaps else each.at, overlaps=each.overlaps, parameters=each.parameters)
        for each in schedule.injections
    ]
    explicit = {"random": None, "faults": listed, "quiet": found.quiet_between, "batch_records": found.micro_batch}
    assert plan(found.model_copy(update=explicit)) == schedule


def test_a_control_is_never_drawn() -> None:
    """Every crash of ``checkpoint`` must show duplicates."""
    assert all("crash_at_step" not in names(plan(drawn("checkpoint", seed))) for seed in range(30))
    with pytest.raises(BadInput, match=r"random\.faults: crash_at_step cannot be drawn for 'checkpoint'"):
        plan(drawn("checkpoint", faults=["crash_at_step"]))


def test_some_overlap_when_asked_and_none_otherwise() -> None:
    assert any(each.overlaps for seed in range(30) for each in plan(drawn(seed=seed, overlaps=True)).injections)
    assert not any(each.overlaps for seed in range(30) for each in plan(drawn(seed=seed)).injections)


@pytest.mark.parametrize("brokers", [1, 3])
def test_every_fault_that_can_be_drawn_is(brokers: int) -> None:
    some = drawn("postgres_ledger").model_copy(update={"brokers": brokers})

    def can_be(name: str) -> bool:
        parameters = FAULTS[name].draw(random.Random(0), some.profile)
        with contextlib.suppress(ValueError):
            some.check_fault(name, parameters or {})
            return parameters is not None
        return False

    found = {name for seed in range(150) for name in names(plan(some.model_copy(update={"seed": seed})))}
    assert found == {name for name in FAULTS if can_be(name)}


def test_what_does_not_fit_is_refused_with_what_to_do() -> None:
    with pytest.raises(BadInput, match=r"random: 6 faults with a quiet of 0.3 need more than the 60 .*`count`.*batch_records below 333"):
        plan(drawn(quiet=0.3))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"random": {"count": 0}}, "greater than or equal to 1"),
        ({"random": {"faults": []}}, "at least 1 item"),
        ({"random": {"faults": ["nope"]}}, "there is no fault 'nope'"),
        ({"random": {"faults": ["cut_postgres"]}}, "has no link to postgres"),
        ({"random": {"quiet": 0.6}}, "a share of at most 0.5"),
        ({"random": {"quiet": "5"}}, "or a time of at most 60s as in '5s', came '5'"),
        ({"random": {"quiet": "61s"}}, "a time of at most 60s"),
        ({"random": {}, "faults": [{"fault": "kill_driver"}]}, "with `random` they are drawn"),
        ({"random": {}, "quiet": 0.1}, "with `random` it is given there"),
    ],
)
def test_a_random_that_makes_no_sense_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Experiment.model_validate({"strategy": "two_phase_commit", **fields})


def test_the_defaults_fit_a_workload_of_the_default_size() -> None:
    found = Experiment(strategy="two_phase_commit", random=Random(), workload=Workload(), seed=3)
    assert len(plan(found).injections) == Random().count
