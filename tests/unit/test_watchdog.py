"""The watchdog acts when a runner has vanished, and never when it is slow, has ended, or the testbed is another's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import RunnerVanished, StageFinished, StageStarted
from streamproof.experiment.model import Experiment
from streamproof.run import lock, stages, watchdog
from streamproof.testbed.process import marked
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.ending import Ending
from streamproof.verdict.verdict import Verdict, ending
from tests.support.histories import unjudged

RUN = "some-run"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    monkeypatch.setattr(watchdog, "LOOK_S", 0.01)
    monkeypatch.setattr(watchdog, "GRACE_S", 0.3)
    return tmp_path


@pytest.fixture
def runner() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a run's."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def _watch() -> tuple[threading.Thread, list[bool]]:
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(watchdog.vanished(RUN)), daemon=True)
    thread.start()
    return thread, found


def test_a_runner_that_is_killed_has_vanished_after_the_grace(home: Path, runner: subprocess.Popen[bytes]) -> None:
    lock.acquire(RUN, home, runner.pid)
    thread, found = _watch()
    time.sleep(0.5)
    assert found == [], "its runner lives"
    killed = time.monotonic()
    runner.kill()
    thread.join(5)
    assert found == [True]
    assert 0.3 <= time.monotonic() - killed < 3


def test_a_runner_that_stands_still_has_not_vanished(home: Path, runner: subprocess.Popen[bytes]) -> None:
    lock.acquire(RUN, home, runner.pid)
    thread, found = _watch()
    runner.send_signal(signal.SIGSTOP)
    time.sleep(0.8)
    assert found == []
    runner.send_signal(signal.SIGCONT)
    lock.release(RUN)
    thread.join(5)
    assert found == [False]


def test_many_processes_that_do_not_beat_any_more_have_vanished(home: Path) -> None:
    lock.acquire(RUN, home, None)
    stale = time.time() - lock.STALE_S - 1
    os.utime(lock.path(), (stale, stale))
    assert watchdog.vanished(RUN)


def test_a_beat_within_the_grace_shows_that_a_run_was_only_slow(home: Path) -> None:
    lock.acquire(RUN, home, None)
    stale = time.time() - lock.STALE_S - 1
    os.utime(lock.path(), (stale, stale))
    thread, found = _watch()
    time.sleep(0.1)
    lock.beat(RUN)
    time.sleep(0.6)
    assert found == []
    lock.release(RUN)
    thread.join(5)
    assert found == [False]


@pytest.mark.parametrize("other", [None, "another-run"])
def test_a_run_that_gave_the_testbed_back_needs_no_timer(home: Path, other: str | None) -> None:
    if other is not None:
        lock.acquire(other, home, os.getpid())
    assert not watchdog.vanished(RUN)


def test_the_process_journals_that_the_runner_vanished_aborts_the_run_and_frees_the_lock(
    home: Path, runner: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "GRACE_S", 0.0)
    folder = stages.create(Experiment(name="left", strategy="checkpoint", seed=1), RUN, owner=runner.pid)
    folder.journal.append(StageStarted(stage="drain", pid=runner.pid))
    lock.acquire(RUN, folder.path, runner.pid)
    runner.kill()
    runner.wait(5)
    monkeypatch.setattr(sys, "argv", ["watchdog", str(folder.path)])
    watchdog.main()
    assert lock.holder() is None
    (vanished,) = folder.journal.all(RunnerVanished)
    assert vanished.reason == f"it was last seen at stage drain, with pid {runner.pid}"
    verdict = Verdict.read(folder).to_json()
    assert verdict["outcome"] == "ABORTED"
    assert verdict["notes"] == [f"its runner vanished: the watchdog gave the testbed back ({vanished.reason})"]


def test_a_run_that_was_judged_keeps_its_verdict(home: Path) -> None:
    folder = stages.create(Experiment(name="left", strategy="checkpoint", seed=1), RUN)
    folder.verdict.write_text(json.dumps(unjudged(stages.run_spec(folder), RunOutcome.PASSED, "all is well")))
    folder.journal.append(StageFinished(stage="expect", seconds=0.1))
    watchdog.give_back(folder)
    verdict = Verdict.read(folder).to_json()
    assert (verdict["outcome"], verdict["reason"]) == ("PASSED", "all is well")
    assert len(verdict["notes"]) == 1
    assert ending(folder, Verdict.read(folder)) == Ending()


def test_it_is_started_once_and_carries_the_mark_of_the_testbed(home: Path) -> None:
    folder = RunFolder.create(home / "runs" / RUN)
    folder.experiment.write_text("strategy: checkpoint\n")
    lock.acquire(RUN, folder.path, os.getpid())
    pids = []
    try:
        for _ in range(2):
            watchdog.start(folder)
            handle = watchdog.remembered(watchdog.ROLE, folder.logs)
            assert handle is not None
            pids.append(handle.pid)
        process = psutil.Process(pids[0])
        assert pids[0] == pids[1]
        assert process.pid in {each.pid for each in marked()}, "`streamproof down` ends it with the testbed"
        assert os.getsid(process.pid) == process.pid, "it does not go with the runner's terminal"
    finally:
        lock.release(RUN)
    assert process.wait(10) in (0, None), "it ends by itself"
