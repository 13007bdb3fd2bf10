"""Faults that overlap do not get into each other's way: those that would are refused, with what both need."""

from __future__ import annotations

import itertools

import pytest
from pydantic import ValidationError

from streamproof.experiment import overlap
from streamproof.experiment.model import Experiment, FaultSpec
from streamproof.faults import FAULTS
from streamproof.faults.fault import Unconditional
from streamproof.faults.outage import LinkOutage, ServerOutage
from streamproof.testbed.embedded import POSTGRES_PROXY

STRATEGY = "postgres_two_phase_commit"  # every fault can be injected into its jobs
LATENCY, DRIVER, EXECUTOR = (FaultSpec(fault=name) for name in ("network_latency", "kill_driver", "kill_executor"))


def under(fault: str, **fields: object) -> FaultSpec:
    return FaultSpec.model_validate({"fault": fault, "overlaps": True, **fields})


def refusal(*faults: FaultSpec, strategy: str = STRATEGY) -> str:
    with pytest.raises(ValidationError) as found:
        Experiment(strategy=strategy, faults=list(faults))
    return found.value.errors()[0]["msg"]


def test_faults_that_overlap_are_one_group_with_the_one_before_them() -> None:
    specs = [LATENCY, under("kill_driver"), EXECUTOR, under("add_partitions"), under("cut_kafka")]
    assert [[spec.fault for spec in group] for group in overlap.groups(specs)] == [
        ["network_latency", "kill_driver"],
        ["kill_executor", "add_partitions", "cut_kafka"],
    ]


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ("network_latency", "cut_kafka", "network_latency and cut_kafka cannot overlap: each needs the link to kafka for itself"),
        ("network_latency", "kill_kafka", "the link to kafka"),
        ("add_partitions", "kill_kafka", "each needs kafka for itself"),
        ("pause_kafka", "kill_kafka", "a stall of the job and kafka and the link to kafka"),
        ("cut_postgres", "pause_postgres", "the link to postgres"),
        ("cut_kafka", "cut_postgres", "each needs a stall of the job for itself"),
        ("kill_driver", "kill_executor", "each needs the driver for itself"),
        ("crash_at_step", "kill_driver", "each needs the driver for itself"),
        ("network_latency", "network_latency", "the link to kafka"),
    ],
)
def test_two_faults_that_need_the_same_are_refused(one: str, other: str, told: str) -> None:
    assert told in refusal(FaultSpec(fault=one), under(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("network_latency", "kill_driver"),
        ("network_latency", "kill_executor"),
        ("network_latency", "pause_postgres"),
        ("cut_kafka", "kill_driver"),
        ("kill_executor", "add_partitions"),
        ("cut_kafka", "add_partitions"),
    ],
)
def test_two_faults_that_need_different_things_may_overlap(one: str, other: str) -> None:
    assert Experiment(strategy=STRATEGY, faults=[FaultSpec(fault=one), under(other)])


def test_every_pair_of_a_group_is_looked_at_not_only_neighbours() -> None:
    assert "network_latency and cut_kafka cannot overlap" in refusal(LATENCY, under("kill_driver"), under("cut_kafka"))


def test_what_is_in_another_group_does_not_matter() -> None:
    assert Experiment(strategy=STRATEGY, faults=[LATENCY, under("kill_driver"), FaultSpec(fault="cut_kafka"), under("add_partitions")])


def test_whoever_waits_at_a_step_needs_the_failpoints_for_itself() -> None:
    waiting = FaultSpec(fault="network_latency", step="after_decision")
    assert "each needs the failpoints for itself" in refusal(waiting, under("crash_at_step"))
    assert "each needs the failpoints for itself" in refusal(waiting, under("add_partitions", step="after_decision"))


def test_a_fault_that_says_nothing_is_injected_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Unconditional().occupies is None
    monkeypatch.setattr(type(FAULTS["kill_driver"]), "occupies", None)
    assert "kill_driver is injected alone" in refusal(LATENCY, under("kill_driver"))


def test_an_outage_knows_what_it_occupies_from_its_target() -> None:
    link = type("Link", (LinkOutage,), {"proxy": POSTGRES_PROXY})()
    server = type("Server", (ServerOutage,), {"role": "postgres"})()
    assert link.occupies & server.occupies == {"the link to postgres", "a stall of the job"}


def test_a_conflict_does_not_depend_on_the_order() -> None:
    for one, other in itertools.combinations(FAULTS, 2):
        pair = FaultSpec(fault=one), under(other)
        turned = FaultSpec(fault=other), under(one)
        assert (overlap.conflict(pair) is None) == (overlap.conflict(turned) is None)


def test_the_first_fault_has_none_to_overlap() -> None:
    assert "kill_driver is the first" in refusal(under("kill_driver"), LATENCY)


def test_what_overlaps_is_injected_in_the_phase_of_the_one_before_it() -> None:
    late = FaultSpec(fault="network_latency", phase="recovery")  # type: ignore[arg-type]
    assert Experiment(strategy=STRATEGY, faults=[late, under("kill_driver")])
    assert "is injected in its phase, impact" in refusal(LATENCY, under("kill_driver", phase="recovery"))
