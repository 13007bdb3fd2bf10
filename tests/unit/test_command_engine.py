"""A job that is any command, as an experiment describes it: what it is offered, what is refused before anything is started."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from streamproof.engines.command.job import CommandJob
from streamproof.engines.lookup import read_job
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.experiment.model import Experiment
from streamproof.faults import FAULTS
from streamproof.jobs.job import Job
from streamproof.jobs.profile import Role, Trait
from streamproof.verdict.guarantee import Promise
from tests.support.jobs import spark_job

LOOP = {"engine": "command", "command": ["{python}", "pipelines/forward.py"], "promises": "exactly-once"}


def experiment(job: dict[str, Any] | None = None, **fields: Any) -> Experiment:
    return Experiment.model_validate({"job": {**LOOP, **(job or {})}, "seed": 1, **fields})


def test_what_is_known_of_a_command_is_what_its_description_says() -> None:
    profile = experiment({"transactions": True}).profile
    assert (profile.name, profile.engine, profile.sink, profile.guarantee) == ("forward", "command", "kafka", "exactly-once")
    assert (profile.roles, profile.failpoints) == (frozenset({Role.DRIVER}), ())
    assert profile.traits == {Trait.GROUP_OFFSETS, Trait.KAFKA_TRANSACTIONS}
    assert (profile.promises, experiment({"also_promises": ["atomic"]}).profile.promises) == (frozenset(), {Promise.ATOMIC})


def test_it_is_offered_the_faults_that_need_nothing_it_lacks() -> None:
    offered = set()
    for name, fault in FAULTS.items():
        try:
            fault.check(experiment().profile, {})
        except ValueError:
            continue
        offered.add(name)
    assert {"kill_driver", "cut_kafka", "network_latency", "pause_kafka", "add_partitions", "kill_group_coordinator"} <= offered
    assert not offered & {"kill_executor", "kill_worker", "kill_master", "crash_at_step", "lose_last_commit", "full_disk", "cut_postgres"}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"job": {**LOOP, "engine": "nope"}}, "there is no engine 'nope' for a job; there are: command"),
        ({"job": {**LOOP, "engine": "spark"}}, "there is no engine 'spark' for a job"),
        ({"job": {"command": ["x"]}}, "there is no engine None"),
        ({"job": {**LOOP, "command": []}}, "at least 1 item"),
        ({"job": {**LOOP, "promises": "perhaps"}}, "exactly-once"),
        ({"job": {**LOOP, "comand": ["x"]}}, "Extra inputs are not permitted"),
        ({"job": LOOP, "strategy": "checkpoint"}, "one of the two"),
        ({"job": LOOP, "pipeline": "departures"}, "leave them out"),
        ({"job": LOOP, "faults": [{"fault": "kill_executor"}]}, "kill_executor: a job with 'forward' has no executors"),
        ({"job": LOOP, "faults": [{"fault": "cut_postgres"}]}, "cut_postgres: a job with 'forward' has no link to postgres"),
        ({"job": LOOP, "faults": [{"fault": "cut_kafka", "parameters": {"role": "executors"}}]}, "has no executors: leave `role` out"),
        ({"job": LOOP, "faults": [{"fault": "cut_kafka", "step": "after_output"}]}, "has no step 'after_output'"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_started(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Experiment.model_validate({"seed": 1, **fields})


def test_a_job_is_read_back_by_its_engine_and_in_part_by_anybody(tmp_path: Any) -> None:
    folder = RunFolder.create(tmp_path / "run")
    job = spark_job(folder, "two_phase_commit")
    job.write()
    assert read_job(folder) == job
    assert type(Job.read(folder)) is Job
    assert Job.read(folder).name == job.name
    with pytest.raises(EvidenceError, match="does not describe a job of this kind"):
        CommandJob.read(folder)
