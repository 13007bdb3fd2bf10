"""Every process of a job has ended before its output is drained: by itself, or killed after a grace; others are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from streamproof.engines.command.job import CommandJob
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import DriverStarted, WritersEnded
from streamproof.jobs.engine import EXECUTOR_MARK, RUN_MARK
from streamproof.run import writers
from streamproof.testbed.process import MARK

SLEEPS = "import sys, time; print('ready', flush=True); time.sleep(float(sys.argv[1]))"
LEAVES = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], "60"], env={}, stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    monkeypatch.setattr(writers, "GRACE_S", 1.0)
    folder = RunFolder.create(tmp_path / "run")
    CommandJob(
        engine="command",
        name="sp-run",
        folder=str(folder.path),
        sink="kafka",
        bootstrap="",
        input_topic="in",
        output_topic="out",
        batch_records=1,
        transaction_timeout_ms=1000,
        command=["true"],
        cwd="/",
    ).write()
    return folder


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def _sleeper(started: list[subprocess.Popen[str]], seconds: float, home: Path, **marks: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SLEEPS, str(seconds)]
    environment = {**os.environ, MARK: str(home), **marks}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_process_that_ends_in_time_is_waited_for_and_one_that_does_not_is_killed(
    folder: RunFolder, tmp_path: Path, started: list[subprocess.Popen[str]]
) -> None:
    home = tmp_path.resolve()
    stays = _sleeper(started, 60, home, **{EXECUTOR_MARK: "run"})
    driver = _sleeper(started, 60, home, **{RUN_MARK: "run"})
    other = _sleeper(started, 60, home, **{EXECUTOR_MARK: "another-run"})
    _sleeper(started, 0.4, home, **{EXECUTOR_MARK: "run"})
    ended = writers.end_writers(folder)
    assert (ended.by_themselves, ended.killed) == (1, 2)
    assert ended.seconds >= 1.0
    assert (stays.wait(5), driver.wait(5)) == (-signal.SIGTERM, -signal.SIGTERM)
    assert other.poll() is None
    assert [(event.by_themselves, event.killed) for event in folder.journal.all(WritersEnded)] == [(1, 2)]


def test_nothing_is_waited_for_when_nobody_is_there(folder: RunFolder) -> None:
    ended = writers.end_writers(folder)
    assert (ended.by_themselves, ended.killed) == (0, 0)
    assert ended.seconds < 1.0


def test_a_process_that_forgot_its_environment_is_found_in_the_session_of_its_driver(
    folder: RunFolder, started: list[subprocess.Popen[str]]
) -> None:
    driver = subprocess.Popen([sys.executable, "-c", LEAVES, SLEEPS], stdout=subprocess.PIPE, text=True, start_new_session=True)
    started.append(driver)
    assert driver.stdout is not None
    orphan = psutil.Process(int(driver.stdout.readline()))
    folder.journal.append(DriverStarted(start=1, pid=driver.pid))
    driver.wait(5)
    assert orphan.is_running()
    assert writers.end_writers(folder).killed == 1
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
