"""A runner that is killed in the middle leaves its faults behind; ``streamproof heal`` takes them away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos import lock, runner
from chaos.experiment import Experiment, FaultSpec, Source, Workload
from delivery.folder import RunFolder
from pipelines.transactions import Coordinator
from testbed import settings
from testbed.embedded import Testbed
from testbed.process import marked

WAIT_S = 120.0
EXPERIMENT = """
name: left-behind
strategy: two_phase_commit
workload: {source: synthetic, records: 20000}
faults: [{fault: network_latency, at: 0.3, parameters: {latency_ms: 100, batches: 50}}]
batch_records: 200
seed: 5
"""


def _streamproof(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "chaos.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=settings.ROOT, check=False)


def _injected_run() -> RunFolder | None:
    for path in settings.runs().glob("*-left-behind*/journal.jsonl"):
        folder = RunFolder(path.parent)
        if folder.journal.last("injection_injected") is not None and folder.journal.last("restored") is None:
            return folder
    return None


@pytest.fixture
def abandoned(testbed: Testbed, tmp_path: Path) -> RunFolder:
    """A run whose runner got a SIGKILL while its toxic was in place."""
    file = tmp_path / "left-behind.yaml"
    file.write_text(EXPERIMENT)
    process = subprocess.Popen(
        [sys.executable, "-m", "chaos.cli", "run", str(file)], cwd=settings.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + WAIT_S
    try:
        while (folder := _injected_run()) is None:
            assert process.poll() is None, "the run ended before its fault"
            assert time.monotonic() < deadline, "the fault did not strike in time"
            time.sleep(0.05)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
    assert testbed.proxies.toxics("kafka-driver"), "the killed runner has left its toxic"
    assert marked(STREAMPROOF_RUN=folder.name), "the killed runner has left its driver"
    return folder


def test_heal_leaves_no_toxic_no_process_and_no_open_transaction_and_the_next_run_passes(testbed: Testbed, abandoned: RunFolder) -> None:
    healed = _streamproof("heal")
    assert healed.returncode == 0, healed.stderr
    assert abandoned.name in healed.stdout
    assert all(testbed.proxies.toxics(name) == {} for name in testbed.links)
    assert [
        process.cmdline() for mark in ("STREAMPROOF_RUN", "STREAMPROOF_EXECUTOR_OF") for process in marked(**{mark: abandoned.name})
    ] == []
    with Coordinator(testbed.direct_kafka) as coordinator:
        assert coordinator.ongoing("") == []
    assert lock.holder() is None
    assert abandoned.read_json(abandoned.verdict)["outcome"] == "ABORTED"
    assert "nothing to heal" in _streamproof("heal").stdout or _streamproof("heal").returncode == 0

    found = Experiment(
        strategy="two_phase_commit",
        workload=Workload(source=Source.SYNTHETIC, records=4000),
        faults=[FaultSpec(fault="kill_executor")],
        seed=6,
    )
    folder = runner.run(found)
    verdict = folder.read_json(folder.verdict)
    assert verdict["outcome"] == "PASSED", verdict["reason"]


def test_the_next_run_heals_what_an_abandoned_one_left(testbed: Testbed, abandoned: RunFolder) -> None:
    found = Experiment(strategy="checkpoint", workload=Workload(source=Source.SYNTHETIC, records=4000), seed=7)
    folder = runner.run(found)
    assert folder.read_json(folder.verdict)["outcome"] == "PASSED"
    assert abandoned.journal.last("restored") is not None
    assert all(testbed.proxies.toxics(name) == {} for name in testbed.links)


def test_a_held_testbed_is_refused_before_anything_is_touched(testbed: Testbed, tmp_path: Path) -> None:
    lock.acquire("somebody-elses-run", tmp_path, os.getpid())
    try:
        found = Experiment(strategy="checkpoint", workload=Workload(source=Source.SYNTHETIC, records=4000), seed=8)
        with pytest.raises(lock.TestbedBusy, match="somebody-elses-run"):
            runner.run(found)
        assert lock.holder() is not None, "a run that was refused must not release another's lock"
    finally:
        lock.release("somebody-elses-run")
