"""Runs on a Spark that was started elsewhere: executors are found by their role, and the cluster's own processes are left alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamproof.evidence.journal import DriverReady, Restored
from streamproof.experiment.model import Experiment
from streamproof.run import runner
from streamproof.testbed import spark
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.external_spark import Spark
from streamproof.testbed.process import marked
from tests.support.elsewhere_spark import elsewhere_spark

RECORDS = 3000


@pytest.fixture(scope="module")
def elsewhere(home: Path) -> Iterator[Spark]:
    with elsewhere_spark() as started:
        yield started


def described(elsewhere: Spark, strategy: str, *faults: dict[str, Any]) -> Experiment:
    return Experiment.model_validate(
        {
            "name": "elsewhere-spark",
            "strategy": strategy,
            "testbed": "external",
            "external": {"spark": elsewhere.model_dump(exclude_none=True)},
            "workload": {"source": "synthetic", "records": RECORDS},
            "faults": list(faults),
            "seed": 6,
            "timeout_s": 600,
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["two_phase_commit", "checkpoint"])
def test_an_executor_that_another_spark_started_is_killed_by_its_role(testbed: Testbed, elsewhere: Spark, strategy: str) -> None:
    before = {process.pid for process in psutil.process_iter() if _of_spark(process)}
    folder = runner.run(described(elsewhere, strategy, {"fault": "kill_executor", "at": 0.4}))
    verdict = folder.read_json(folder.verdict)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    (injection,) = verdict["injections"]
    assert all(check["passed"] for check in injection["evidence"]), injection["evidence"]
    assert folder.journal.last(Restored) is not None
    ready = folder.journal.last(DriverReady)
    assert ready is not None
    assert ready.application is not None
    assert spark.executor_processes(ready.application) == {}, "its executors are gone"
    applications = spark.master_state(elsewhere.ui)["completedapps"]
    assert ready.application in {each["id"] for each in applications}, "it ran there"
    assert ready.application not in {each["id"] for each in spark.master_state(testbed.spark.master_ui)["completedapps"]}
    assert before <= set(psutil.pids()), "master and worker of both Sparks were left alone"
    assert {process.pid for process in marked()}.isdisjoint(_pids_below_nobody(elsewhere))


def _of_spark(process: psutil.Process) -> bool:
    try:
        return any(word.startswith("org.apache.spark.deploy.") for word in process.cmdline())
    except psutil.Error:
        return False


def _pids_below_nobody(elsewhere: Spark) -> set[int]:
    """The processes of that cluster: none of them carries the testbed's mark."""
    found = set()
    for process in psutil.process_iter():
        try:
            if elsewhere.master in process.cmdline() and process.pid != os.getpid():
                found.add(process.pid)
        except psutil.Error:
            continue
    return found
