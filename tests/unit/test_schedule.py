"""The plan of a run comes from the experiment and its seed alone, and every injection lies inside its phase."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streamproof.engines.spark.registry import STRATEGIES
from streamproof.engines.spark.spec import SparkSpec
from streamproof.errors import BadInput
from streamproof.experiment.model import MAX_SEED, Experiment, FaultSpec, Phase
from streamproof.experiment.room import LATEST_IMPACT_SHARE
from streamproof.experiment.schedule import EARLIEST_AT, MIN_BATCHES, Schedule, plan
from streamproof.faults import FAULTS
from streamproof.load.spec import Source, Workload

SEEDS = st.integers(0, MAX_SEED)
A_JOB = {"engine": "command", "command": ["{python}", "pipelines/forward.py"], "promises": "at-least-once", "instances": 2}
ON_KAFKA_STREAMS = {"engine": "kafka_streams", "source": "pipelines/kafka_streams/Forward.java", "promises": "at-least-once"}
OF_AN_ENGINE = {
    "stop_with_savepoint": {"engine": "flink", "sql": "pipelines/flink_forward.sql", "promises": "exactly-once"},
    "reset_application": ON_KAFKA_STREAMS,
}
STATEFUL = "departures"
STRATEGY = "postgres_two_phase_commit"  # nearly every fault can be injected into its jobs


def admitted(fault: str, strategy: str, pipeline: str = "kafka_to_kafka") -> bool:
    try:
        FAULTS[fault].check(SparkSpec(strategy, pipeline).profile, {})
    except ValueError:
        return False
    return True


FAULT_NAMES = st.sampled_from(sorted(fault for fault in FAULTS if admitted(fault, STRATEGY)))
TRIGGERS = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"at": st.floats(0.05, 0.9)}),
    st.fixed_dictionaries({"batch": st.integers(1, 200)}),
    st.just({"phase": Phase.RECOVERY}),
)
FROM_THE_START = st.sampled_from(["kill_at_window", "lose_answer"])
SPECS = st.one_of(
    st.builds(lambda fault, trigger: FaultSpec(fault=fault, **trigger), FAULT_NAMES, TRIGGERS),
    st.builds(lambda fault: FaultSpec(fault=fault, phase=Phase.START), FROM_THE_START),
)


def experiment(*faults: FaultSpec, **fields: Any) -> Experiment:
    return Experiment(**{"strategy": STRATEGY, "brokers": 3, "faults": list(faults), "seed": 1, **fields})


@given(SEEDS, st.lists(SPECS, max_size=6), st.integers(100, 50_000))
def test_every_plan_is_possible_or_refused(seed: int, specs: list[FaultSpec], batch: int) -> None:
    found = experiment(*specs, seed=seed, batch_records=batch)
    try:
        schedule = plan(found)
    except BadInput:
        assume(False)
    shares = [injection.at for injection in schedule.injections]
    assert shares == sorted(shares)
    impact = [injection.at for injection in schedule.injections if injection.phase is Phase.IMPACT]
    assert all(schedule.steady_share < share < schedule.impact_share for share in impact)
    start = [injection.at for injection in schedule.injections if injection.phase is Phase.START]
    assert set(start) <= {0.0}
    assert all(share == schedule.impact_share for share in shares[len(start) + len(impact) :])
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
    strategy = next((each for each in (STRATEGY, *STRATEGIES) if admitted(fault, each)), None)
    tested: dict[str, Any] = {"job": A_JOB, "strategy": None} if strategy is None else {"strategy": strategy}
    if admitted(fault, STRATEGY, STATEFUL) and strategy is None:
        tested = {"strategy": STRATEGY, "pipeline": STATEFUL, "workload": Workload(source=Source.FLIGHTS)}
    if fault in OF_AN_ENGINE:
        tested = {"job": OF_AN_ENGINE[fault], "strategy": None}
    assert len(plan(experiment(FaultSpec(fault=fault), **tested, seed=seed)).injections) == 1


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


# --- triggers -----------------------------------------------------------------------------------------------------------------------


def test_a_fault_that_waits_for_a_batch_has_the_share_by_which_that_is_certainly_committed() -> None:
    schedule = plan(experiment(FaultSpec(fault="kill_driver", batch=5), workload=Workload(records=10_000), batch_records=700))
    (injection,) = schedule.injections
    assert (injection.batch, injection.at) == (5, 0.35)
    assert schedule.steady_share == 0.175


def test_a_batch_outside_of_the_impact_phase_is_refused_with_those_inside() -> None:
    fields: dict[str, Any] = {"workload": Workload(records=10_000), "batch_records": 100}
    for batch in (4, 91):
        with pytest.raises(BadInput, match=f"kill_driver is injected after batch {batch} of the 100 micro-batches .*, expected 5 to 90"):
            plan(experiment(FaultSpec(fault="kill_driver", batch=batch), **fields))
    assert plan(experiment(FaultSpec(fault="kill_driver", batch=5), **fields))


def test_a_step_is_waited_for_after_the_fault_before_it() -> None:
    first = FaultSpec(fault="cut_postgres", step="after_decision")
    later = FaultSpec(fault="network_latency", step="after_prepare")
    schedule = plan(experiment(first, FaultSpec(fault="kill_driver", at=0.4), later, batch_records=400))
    assert [(each.fault, each.at, each.step) for each in schedule.injections] == [
        ("cut_postgres", EARLIEST_AT, "after_decision"),
        ("kill_driver", 0.4, None),
        ("network_latency", 0.4, "after_prepare"),
    ]


def test_what_overlaps_stays_with_the_one_before_it() -> None:
    specs = [
        FaultSpec(fault="network_latency", at=0.5),
        FaultSpec(fault="kill_driver", overlaps=True),
        FaultSpec(fault="add_partitions", at=0.3),
    ]
    schedule = plan(experiment(*specs, batch_records=400))
    assert [(each.fault, each.at, each.overlaps) for each in schedule.injections] == [
        ("add_partitions", 0.3, False),
        ("network_latency", 0.5, False),
        ("kill_driver", 0.5, True),
    ]
    assert [len(group) for group in schedule.groups(Phase.IMPACT)] == [1, 2]


def test_faults_of_the_recovery_phase_come_last_and_are_left_their_part() -> None:
    late = FaultSpec(fault="pause_kafka", phase=Phase.RECOVERY)
    schedule = plan(experiment(late, FaultSpec(fault="kill_driver", at=0.3)))
    assert [each.fault for each in schedule.injections] == ["kill_driver", "pause_kafka"]
    batch = experiment().micro_batch / experiment().workload.records
    assert schedule.impact_share == schedule.injections[1].at == pytest.approx(1 - 4 * batch, abs=0.001)
    with pytest.raises(BadInput, match="expected at most 67%, to leave those of the recovery phase their part"):
        plan(experiment(late, FaultSpec(fault="kill_driver", at=0.6)))
    with pytest.raises(BadInput, match="those of the recovery phase need 133% of the records"):
        plan(experiment(*[late] * 4))


def test_faults_of_the_start_come_first_and_move_the_others() -> None:
    early = FaultSpec(fault="kill_at_window", phase=Phase.START)
    schedule = plan(experiment(FaultSpec(fault="kill_driver", at=0.3), early))
    batch = experiment().micro_batch / experiment().workload.records
    assert [(each.fault, each.phase) for each in schedule.injections] == [("kill_at_window", "start"), ("kill_driver", "impact")]
    assert schedule.steady_share == pytest.approx(3 * batch + 0.15, abs=0.001)
    assert schedule.injections[1].at == pytest.approx(schedule.steady_share + 0.001)
    with pytest.raises(BadInput, match=r"kill_at_window-1, .* need records up to"):
        plan(experiment(*[early] * 9))


def test_only_some_faults_are_for_the_start() -> None:
    with pytest.raises(ValueError, match=r"kill_driver: it needs a job that is at work; in the phase `start` can be: .*kill_at_window"):
        experiment(FaultSpec(fault="kill_driver", phase=Phase.START))
    with pytest.raises(ValueError, match=r"before the job has committed anything; leave `at: 0.5` out"):
        FaultSpec(fault="kill_at_window", phase=Phase.START, at=0.5)


def test_a_quiet_needs_its_part_of_the_workload() -> None:
    specs = [FaultSpec(fault="kill_driver", at=0.3), FaultSpec(fault="kill_driver", at=0.31)]
    quick, slow = (plan(experiment(*specs, quiet=quiet, batch_records=1000)) for quiet in (0.0, 0.3))
    assert (quick.impact_share, slow.impact_share, slow.quiet) == (0.75, pytest.approx(0.3 + 0.1 + 0.3 + 0.1, abs=0.001), 0.3)
    with pytest.raises(BadInput, match="need records up to 100%"):
        plan(experiment(*specs, quiet=0.5, batch_records=1000))


def test_a_schedule_without_what_came_later_is_read_all_the_same() -> None:
    old = {
        "seed": 1,
        "steady_share": 0.2,
        "impact_share": 0.75,
        "injections": [{"injection": "a-1", "fault": "a", "at": 0.4, "parameters": {}}],
    }
    (injection,) = Schedule.from_json(json.dumps(old)).injections
    assert (injection.phase, injection.step, injection.overlaps) == (Phase.IMPACT, None, False)
