"""Schedules on a real job: faults that wait for a step or a batch, overlap, are drawn; and the search for the smallest that fails."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import FailpointHeld
from streamproof.experiment.model import Experiment, FaultSpec, Phase, load
from streamproof.load.spec import Source, Workload
from streamproof.run import runner, soak
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.guarantee import Guarantee
from tests.support.checkout import ROOT

RECORDS = 6000
BATCHES = 30


def _run(strategy: str, *faults: FaultSpec, **fields: Any) -> RunFolder:
    workload = Workload(source=Source.SYNTHETIC, records=RECORDS)
    known = {"name": "test", "batch_records": RECORDS // BATCHES, "seed": 11, "timeout_s": 300}
    return runner.run(Experiment(strategy=strategy, workload=workload, faults=list(faults), **{**known, **fields}))


def _assert_passed(folder: RunFolder, testbed: Testbed) -> list[dict[str, Any]]:
    """Returns the injections."""
    verdict = folder.read_json(folder.verdict)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert soak.leftovers(folder, testbed) == []
    found: list[dict[str, Any]] = verdict["injections"]
    assert all(check["passed"] for injection in found for check in injection["evidence"])
    return found


@pytest.mark.slow
def test_faults_are_injected_at_a_step_after_a_batch_and_under_each_other(testbed: Testbed) -> None:
    """A task is held as it has prepared, and its executor killed; the driver as it has decided, and Kafka cut off."""
    folder = _run(
        "two_phase_commit",
        FaultSpec(fault="kill_executor", step="after_prepare"),
        FaultSpec(fault="cut_kafka", step="after_decision", parameters={"seconds": 1.0}),
        FaultSpec(fault="network_latency", batch=14, parameters={"latency_ms": 40, "batches": 3}),
        FaultSpec(fault="add_partitions", overlaps=True),
        quiet=0.03,
    )
    injections = {injection["fault"]: injection for injection in _assert_passed(folder, testbed)}
    told = {name: injection["evidence"][0]["check"] for name, injection in injections.items()}
    assert told["kill_executor"] == "it was injected while the job was held at after_prepare"
    assert told["cut_kafka"] == "it was injected while the job was held at after_decision"
    assert told["add_partitions"] == "it was injected while network_latency-1 lasted"
    held = [event.failpoint for event in folder.journal.all(FailpointHeld)]
    assert held == ["after_prepare", "after_decision"]
    lasted = injections["network_latency"]
    assert lasted["injected_at"] <= injections["add_partitions"]["injected_at"] <= lasted["healed_at"]


@pytest.mark.slow
def test_postgres_is_cut_off_and_killed_while_prepared_transactions_wait(testbed: Testbed) -> None:
    """They outlive both: nobody has decided about the first when the link is cut, and the others are decided when the server is killed."""
    folder = _run(
        "postgres_two_phase_commit",
        FaultSpec(fault="cut_postgres", step="before_decision", parameters={"seconds": 1.0}),
        FaultSpec(fault="kill_postgres", step="after_decision", parameters={"seconds": 1.0}),
        quiet=0.03,
    )
    cut, killed = _assert_passed(folder, testbed)
    assert cut["evidence"][0]["check"] == "it was injected while the job was held at before_decision"
    assert killed["evidence"][0]["check"] == "it was injected while the job was held at after_decision"


@pytest.mark.slow
def test_a_fault_is_injected_at_a_step_inside_of_spark_and_in_the_recovery_phase(testbed: Testbed) -> None:
    """The step of Spark's own sink carries no failpoint: the driver is stopped as it is seen there, Kafka cut off, the driver let go on."""
    folder = _run(
        "checkpoint",
        FaultSpec(fault="cut_kafka", step="after_output", parameters={"seconds": 1.0}),
        FaultSpec(fault="kill_driver", phase=Phase.RECOVERY),
        quiet="2s",
    )
    cut, late = _assert_passed(folder, testbed)
    assert cut["evidence"][0]["check"] == "it was injected while the job was held at after_output"
    assert (cut["phase"], late["phase"]) == ("impact", "recovery")


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "seed"), [("two_phase_commit", 1), ("postgres_ledger", 2)])
def test_a_random_schedule_costs_no_record_and_leaves_nothing_behind(testbed: Testbed, strategy: str, seed: int) -> None:
    """``streamproof soak`` does the same with as many seeds as wanted."""
    soaked = soak.soak(soak.experiment(strategy, seed))
    assert (soaked.outcome, soaked.left) == ("PASSED", []), soaked.reason
    assert len(soaked.faults) == soak.COUNT


@pytest.mark.slow
def test_of_three_faults_the_one_that_breaks_the_guarantee_is_found(testbed: Testbed, tmp_path: Path) -> None:
    folder = _run(
        "offset_commit",
        FaultSpec(fault="network_latency", at=0.25, parameters={"latency_ms": 30}),
        FaultSpec(fault="crash_at_step", at=0.45, parameters={"step": "after_output"}),
        FaultSpec(fault="add_partitions", at=0.6),
        guarantee=Guarantee.EXACTLY_ONCE,
    )
    assert folder.read_json(folder.verdict)["outcome"] == "FAILED"
    command = [sys.executable, "-m", "streamproof.cli.main", "shrink", folder.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=480, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"1 of 3 suffice after \d tries: crash_at_step", done.stdout), done.stdout
    path = Path(done.stdout.split()[-1])
    (spec,) = load(path).faults
    assert (spec.fault, spec.at, spec.parameters["step"]) == ("crash_at_step", 0.45, "after_output")
    tries = json.loads((path.parent / "tries.json").read_text())
    assert [each["injections"] for each in tries if each["fails"]][-1] == ["crash_at_step-1"]
    assert all(Path(each["folders"][-1]).is_dir() for each in tries)
