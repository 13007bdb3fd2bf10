"""A runner may be killed at any stage: the watchdog leaves nothing of its run behind, and the next run passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamproof.evidence.journal import RunnerVanished, StageFinished
from streamproof.experiment.model import Experiment, FaultSpec
from streamproof.load.spec import Source, Workload
from streamproof.run import runner
from streamproof.testbed.embedded import Testbed
from tests.faults.killed import assert_nothing_is_left, kill_runner_at, wait_until_given_back

KAFKA, POSTGRES = "two_phase_commit", "postgres_two_phase_commit"
LATENCY: dict[str, Any] = {"fault": "network_latency", "at": 0.3, "parameters": {"latency_ms": 20, "batches": 2}}
LONG: dict[str, dict[str, Any]] = {
    "network_latency": {"latency_ms": 100, "batches": 5},
    "pause_kafka": {"seconds": 60},
    "cut_kafka": {"seconds": 60},
    "pause_postgres": {"seconds": 60},
}
JUDGED = ("restore", "report")
CASES = [
    ("prepare", KAFKA, "network_latency"),
    ("steady", KAFKA, "network_latency"),
    ("steady", POSTGRES, "network_latency"),
    ("impact", KAFKA, "network_latency"),
    ("impact", KAFKA, "pause_kafka"),
    ("impact", KAFKA, "cut_kafka"),
    ("impact", POSTGRES, "pause_postgres"),
    ("drain", KAFKA, "network_latency"),
    ("verify", POSTGRES, "network_latency"),
    ("expect", KAFKA, "network_latency"),
    ("restore", KAFKA, "network_latency"),
    ("report", KAFKA, "network_latency"),
]


def _experiment(moment: str, strategy: str, fault: str) -> dict[str, Any]:
    parameters = LONG[fault] if moment == "impact" else LATENCY["parameters"]
    return {
        "name": f"killed-at-{moment}",
        "strategy": strategy,
        "workload": {"source": "synthetic", "records": 4000},
        "faults": [{"fault": fault, "at": 0.3, "parameters": parameters}],
        "batch_records": 200,
        "seed": 5,
    }


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "strategy", "fault"), CASES)
def test_a_runner_killed_at_any_step_leaves_nothing_and_the_next_run_passes(
    testbed: Testbed, tmp_path: Path, moment: str, strategy: str, fault: str
) -> None:
    killed = kill_runner_at(moment, _experiment(moment, strategy, fault), tmp_path)
    journal = killed.folder.journal
    if moment in ("drain", "verify", "expect", "restore", "report"):
        assert moment not in {event.stage for event in journal.all(StageFinished)}, "it was killed in the middle of it"
    wait_until_given_back(killed)
    assert_nothing_is_left(killed, testbed)
    assert bool(journal.all(RunnerVanished)) == (moment != "report"), "before the report the testbed was given back"
    verdict = killed.folder.read_json(killed.folder.verdict)
    assert verdict["outcome"] == ("PASSED" if moment in JUDGED else "ABORTED")
    assert len(verdict["notes"]) == (0 if moment == "report" else 1)

    workload = Workload(source=Source.SYNTHETIC, records=2400)
    folder = runner.run(Experiment(strategy=strategy, workload=workload, faults=[FaultSpec(fault="kill_executor")], seed=6))
    after = folder.read_json(folder.verdict)
    assert after["outcome"] == "PASSED", after["reason"]
