"""A runner that is killed in the middle leaves its faults behind; ``streamproof heal``, or the next run, takes them away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamproof.evidence.journal import Restored
from streamproof.experiment.model import Experiment
from streamproof.load.spec import Source, Workload
from streamproof.run import lock, runner
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import marked
from tests.faults.killed import Killed, assert_nothing_is_left, kill_runner_at, wait_until_given_back
from tests.support.checkout import ROOT

EXPERIMENT = {
    "name": "left-behind",
    "strategy": "two_phase_commit",
    "workload": {"source": "synthetic", "records": 20_000},
    "faults": [{"fault": "network_latency", "at": 0.3, "parameters": {"latency_ms": 100, "batches": 50}}],
    "batch_records": 200,
    "seed": 5,
}


def _streamproof(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamproof.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)


@pytest.fixture
def abandoned(testbed: Testbed, tmp_path: Path) -> Killed:
    """A run whose runner got a SIGKILL while its toxic was in place; the watchdog has not acted yet."""
    killed = kill_runner_at("impact", EXPERIMENT, tmp_path)
    assert testbed.proxies.toxics("kafka-driver"), "the killed runner has left its toxic"
    assert marked(STREAMPROOF_RUN=killed.folder.name), "the killed runner has left its driver"
    return killed


def test_heal_leaves_no_toxic_no_process_and_no_open_transaction(testbed: Testbed, abandoned: Killed) -> None:
    healed = _streamproof("heal")
    assert healed.returncode == 0, healed.stderr
    assert abandoned.folder.name in healed.stdout
    assert [process.cmdline() for process in marked(STREAMPROOF_RUN=abandoned.folder.name)] == []
    assert lock.holder() is None
    assert abandoned.folder.read_json(abandoned.folder.verdict)["outcome"] == "ABORTED"
    wait_until_given_back(abandoned)
    assert_nothing_is_left(abandoned, testbed)
    assert len(abandoned.folder.journal.all(Restored)) == 1, "the watchdog finds it done"
    assert _streamproof("heal").returncode == 0


@pytest.mark.slow
def test_the_next_run_heals_what_an_abandoned_one_left(testbed: Testbed, abandoned: Killed) -> None:
    found = Experiment(strategy="checkpoint", workload=Workload(source=Source.SYNTHETIC, records=4000), seed=7)
    folder = runner.run(found)
    assert folder.read_json(folder.verdict)["outcome"] == "PASSED"
    assert abandoned.folder.journal.last(Restored) is not None
    assert all(testbed.proxies.toxics(name) == {} for name in testbed.links)


def test_a_held_testbed_is_refused_before_anything_is_touched(testbed: Testbed, tmp_path: Path) -> None:
    lock.acquire("somebody-elses-run", tmp_path, os.getpid())
    try:
        found = Experiment(strategy="checkpoint", workload=Workload(source=Source.SYNTHETIC, records=4000), seed=8)
        with pytest.raises(lock.TestbedBusy, match=rf"held by run somebody-elses-run \({tmp_path}; process {os.getpid()}\)"):
            runner.run(found)
        assert lock.holder() is not None, "a run that was refused must not release another's lock"
    finally:
        lock.release("somebody-elses-run")
