"""Runs whose output has times that lie, or that somebody still writes to when the job is over: judged rightly all the same."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamproof import settings
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import WritersEnded
from streamproof.experiment.model import Experiment
from streamproof.run import runner
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.verdict import Verdict
from tests.support.checkout import ROOT
from tests.support.lingering import HELD

FORWARD = str(ROOT / "tests" / "faults" / "late_forward.py")


def _run(*arguments: str, promises: str = "at-least-once") -> tuple[RunFolder, dict[str, Any]]:
    job = {"engine": "command", "command": ["{python}", FORWARD, *arguments], "promises": promises}
    workload = {"source": "synthetic", "records": 6000}
    folder = runner.run(Experiment(name="late", job=job, workload=workload, faults=[{"fault": "kill_driver"}], seed=1))
    return folder, Verdict.read(folder).to_json()


@pytest.mark.slow
def test_a_job_that_passes_event_times_through_is_judged_by_the_brokers_clock(testbed: Testbed) -> None:
    _, verdict = _run("--event-times")
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert (verdict["untimed"], verdict["unordered"]) == (0, 0)
    assert verdict["caught_up_s"] > 0


def test_a_commit_before_its_output_is_seen_whatever_times_the_job_writes(testbed: Testbed) -> None:
    _, verdict = _run("--ahead")
    assert verdict["outcome"] == "FAILED", verdict["reason"]
    assert verdict["anomalies"]["OFFSET_AHEAD"] > 0


@pytest.mark.parametrize(("wait_s", "killed", "doubled"), [(2.5, 0, 1), (30, 1, 0)], ids=["in time", "too late"])
def test_a_process_that_outlives_its_driver_has_ended_before_the_drain(testbed: Testbed, wait_s: float, killed: int, doubled: int) -> None:
    folder, verdict = _run("--executor", str(wait_s), promises="exactly-once")
    (ended,) = folder.journal.all(WritersEnded)
    assert ended.killed == killed
    assert ended.by_themselves >= 1 - killed
    assert verdict["anomalies"]["DUPLICATED"] == doubled
    assert verdict["outcome"] == ("FAILED" if doubled else "PASSED"), verdict["reason"]


@pytest.mark.slow
def test_a_task_of_spark_that_outlives_its_executor_has_written_before_the_drain(testbed: Testbed, tmp_path: Path) -> None:
    """A Python worker of the first start, which was killed, delivers a record again two seconds after the second start has ended."""
    experiment = {
        "name": "lingering",
        "strategy": "lingering",
        "guarantee": "exactly-once",
        "workload": {"source": "synthetic", "records": 6000},
        "batch_records": 200,
        "faults": [{"fault": "kill_driver", "batch": HELD, "parameters": {"delay_s": 8}}],  # a task is held by then
        "seed": 1,
    }
    (tmp_path / "lingering.yaml").write_text(json.dumps(experiment))
    command = [sys.executable, "-m", "streamproof.cli.main", "run", str(tmp_path / "lingering.yaml")]
    env = {**os.environ, "STREAMPROOF_STRATEGIES": "tests.support.lingering:Lingering"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=240, check=False)
    (found,) = settings.runs().glob("*-lingering")
    verdict, (ended,) = Verdict.read(RunFolder(found)).to_json(), RunFolder(found).journal.all(WritersEnded)
    assert verdict["driver_starts"] == 2, done.stdout + done.stderr
    assert (ended.killed, ended.by_themselves >= 1) == (0, True)
    assert verdict["outcome"] == "FAILED", verdict["reason"]
    assert verdict["anomalies"]["DUPLICATED"] == 1


def test_an_output_that_somebody_never_stops_writing_to_was_not_read_to_its_end(testbed: Testbed) -> None:
    folder, verdict = _run("--stranger", "0")
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((folder.checkpoint / "state" / "late.pid").read_text()), signal.SIGKILL)
    assert verdict["outcome"] == "INCONCLUSIVE", verdict["reason"]
    assert "the drain did not reach the end of the output" in verdict["reason"]
