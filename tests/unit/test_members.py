"""The members of a job of several processes: started, started again, and ended together. Real processes, no stand-ins."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from streamproof.engines import members
from streamproof.engines.members import NAME_MARK, ROLE_MARK, Member

SLEEPS = [sys.executable, "-c", "import time; time.sleep(60)"]
WAIT_S = 20.0


def _eventually(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + WAIT_S
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[list[Member]], subprocess.Popen[bytes]]]:
    running = list[subprocess.Popen[bytes]]()

    def start(them: list[Member]) -> subprocess.Popen[bytes]:
        with open(tmp_path / "log", "wb") as log:
            process = subprocess.Popen(members.command(tmp_path / "members.json", them), stdout=log, stderr=log, start_new_session=True)
        running.append(process)
        return process

    yield start
    for process in running:
        left = _below(process)
        process.kill()
        process.wait()
        for each in left:
            each.kill()


def _below(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Those of the members that are what they were started as: one that was forked a moment ago has its parent's environment still."""
    try:
        return [each for each in psutil.Process(process.pid).children() if NAME_MARK in each.environ()]
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []


def _named(process: subprocess.Popen[bytes]) -> dict[str, psutil.Process]:
    return {each.environ()[NAME_MARK]: each for each in _below(process)}


def test_each_member_has_its_role_and_a_process_group_of_its_own(started: Callable[[list[Member]], subprocess.Popen[bytes]]) -> None:
    process = started([Member("leader", "coordinator", SLEEPS), Member("worker-1", "workers", SLEEPS, {"NUMBER": "1"})])
    assert _eventually(lambda: len(_below(process)) == 2)
    found = _named(process)
    assert {name: each.environ()[ROLE_MARK] for name, each in found.items()} == {"leader": "coordinator", "worker-1": "workers"}
    assert found["worker-1"].environ()["NUMBER"] == "1"
    assert all(os.getpgid(each.pid) == each.pid for each in found.values())


def test_a_member_that_is_killed_is_started_again_and_the_others_go_on(started: Callable[[list[Member]], subprocess.Popen[bytes]]) -> None:
    process = started([Member(name, "workers", SLEEPS, again_s=0.1) for name in ("one", "two")])
    assert _eventually(lambda: len(_below(process)) == 2)
    before = {name: each.pid for name, each in _named(process).items()}
    os.kill(before["one"], signal.SIGKILL)
    assert _eventually(lambda: _named(process).get("one", psutil.Process()).pid not in (before["one"], os.getpid()))
    assert _named(process)["two"].pid == before["two"]


def test_one_that_must_not_die_ends_the_job_with_its_code(started: Callable[[list[Member]], subprocess.Popen[bytes]]) -> None:
    process = started(
        [Member("worker", "workers", SLEEPS), Member("leader", "coordinator", [sys.executable, "-c", "exit(3)"], again_s=None)]
    )
    below = _below(process)
    assert process.wait(WAIT_S) == 3
    assert not any(each.is_running() for each in below)


def test_one_that_ends_by_itself_again_and_again_ends_the_job(
    started: Callable[[list[Member]], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    process = started([Member("worker", "workers", [sys.executable, "-c", "exit(4)"], again_s=0.05)])
    assert process.wait(WAIT_S) == 4
    assert (tmp_path / "log").read_text().count("member worker ended with 4") == members.QUICK_ENDS


def test_one_that_is_meant_to_end_is_not_missed(started: Callable[[list[Member]], subprocess.Popen[bytes]]) -> None:
    process = started([Member("once", "workers", [sys.executable, "-c", ""], ends=True), Member("worker", "workers", SLEEPS)])
    assert _eventually(lambda: set(_named(process)) == {"worker"})
    assert process.poll() is None


def test_on_sigterm_all_end_and_the_code_is_0(started: Callable[[list[Member]], subprocess.Popen[bytes]]) -> None:
    process = started([Member(name, "workers", SLEEPS) for name in ("one", "two")])
    assert _eventually(lambda: len(_below(process)) == 2)
    below = _below(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 0
    assert _eventually(lambda: not any(each.is_running() for each in below))
