"""``streamproof check --spark`` on real masters: it says what the local check says, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamproof.evidence import manifest
from streamproof.evidence.folder import RunFolder
from streamproof.experiment.model import Experiment, FaultSpec
from streamproof.experiment.schedule import plan
from streamproof.load.spec import Workload
from streamproof.run import runner, stages
from streamproof.testbed import spark as spark_component
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import free_port, stop
from streamproof.testbed.spark import SparkPorts
from streamproof.verdict.judge import judge
from streamproof.verdict.verdict import Verdict
from tests.support.checkout import ROOT
from tests.support.histories import Story

pytestmark = pytest.mark.slow

TIMEOUT_S = 200
IMPATIENT = "from streamproof.cli import main; from streamproof.run import spark_check; spark_check.EXECUTOR_S = 3.0; main.main()"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A finished run that lost one record, delivered one twice and one damaged."""
    story = Story()
    story.histories.drop([(0, 22)])
    story.histories.double([(0, 31)])
    story.histories.change((0, 40), crc=7)
    folder = story.write(tmp_path / "run")
    found = Experiment(name="test", strategy="two_phase_commit", faults=[FaultSpec(fault="kill_executor", at=0.4)], seed=7)
    folder.experiment.write_text(found.to_yaml())
    folder.schedule.write_text(plan(found).to_json())
    manifest.write(folder)
    return folder


def streamproof(
    *words: str | Path, tmp: Path, code: str = "from streamproof.cli import main; main.main()"
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own; what it leaves in the folder for temporary files would be found."""
    environment = {**os.environ, "TMPDIR": str(tmp)}
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=ROOT, env=environment, check=False)


def said(done: subprocess.CompletedProcess[str]) -> tuple[dict[str, Any], list[str]]:
    found = json.loads(done.stdout)
    return found, found.pop("notes")


@pytest.mark.parametrize("master", ["local[2]", "testbed"])
def test_it_says_what_the_local_check_says(testbed: Testbed, run: RunFolder, tmp_path: Path, master: str) -> None:
    tmp = Path(tempfile.mkdtemp(dir=tmp_path))
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    here, there = (streamproof("check", run.path, "--json", *words, tmp=tmp) for words in ((), ("--spark", master)))
    assert (there.returncode, there.stderr) == (1, "")
    (local, _), (spark, notes) = said(here), said(there)
    assert spark == local
    seen = {anomaly: count for anomaly, count in spark["anomalies"].items() if count}
    assert seen == {"LOST": 1, "DUPLICATED": 1, "CORRUPTED": 1, "TORN": 1}
    assert [record["blame"] for record in spark["records"]] == [record["blame"] for record in local["records"]] != []
    where = testbed.spark_master if master == "testbed" else master
    assert notes == [f"the histories were compared by a Spark job on {where}"]
    assert list(tmp.iterdir()) == []
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before, "it writes nothing"
    left = [process.pid for process in psutil.process_iter(["cmdline"]) if str(tmp) in " ".join(process.info["cmdline"] or [])]
    assert left == [], "the JVM is named after its folder for temporary files"


def test_a_master_without_a_worker_is_one_line(home: Path, run: RunFolder, tmp_path: Path) -> None:
    master = SparkPorts(free_port(), free_port(), *({role: free_port() for role in spark_component.WORKERS} for _ in range(2)))
    handle = spark_component.start_master(tmp_path / "master", master)
    try:
        where = f"spark://127.0.0.1:{master.master}"
        done = streamproof("check", run.path, "--spark", where, tmp=tmp_path, code=IMPATIENT)
    finally:
        process = handle.process()
        assert process is not None
        stop([process])
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"error: --spark: {where} gave no executor within 3 s: has it a worker with a free core, and memory?\n"


def test_a_run_may_have_its_histories_compared_there(testbed: Testbed) -> None:
    found = Experiment(name="test", strategy="checkpoint", workload=Workload(records=2400), faults=[FaultSpec(fault="kill_driver")], seed=5)
    folder = runner.run(found, spark="testbed")
    stored = Verdict.read(folder).to_json()
    assert stored["outcome"] == "PASSED", stored["reason"]
    assert stored["notes"] == [f"the histories were compared by a Spark job on {testbed.spark_master}"]
    again = judge(folder, stages.run_spec(folder)).verdict.to_json()
    volatile = ("stage_seconds", "notes", "suite")
    assert {key: value for key, value in again.items() if key not in volatile} == {k: v for k, v in stored.items() if k not in volatile}
