"""A failpoint fires once among all processes, for its batch, after saying so; or it holds one; disarmed it costs next to nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import timeit
from pathlib import Path

import psutil
import pytest

from streamproof.engines.spark.failpoints import FailpointError, arm, armed, disarm, disarm_all, hold, holds, kill_driver, reach
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import FailpointFired, FailpointHeld, FailpointReleased
from streamproof.jobs.failpoint import Action, Site
from tests.support.checkout import ROOT

# Reaches the step again and again until it fired for somebody; exit code 7 when it fired here.
REACHES = """
import sys
from streamproof.evidence.folder import RunFolder
from streamproof.engines.spark.failpoints import FailpointError, reach
folder = RunFolder(sys.argv[1])
print("ready", flush=True)
while not (folder.path / "go").exists():
    pass
try:
    for batch in range(200):
        reach(folder, "after_output", batch)
except FailpointError:
    sys.exit(7)
"""
REACHES_ONCE = """
import sys
from streamproof.engines.spark.failpoints import reach
from streamproof.evidence.folder import RunFolder
reach(RunFolder(sys.argv[1]), 'x', 1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def test_a_disarmed_failpoint_does_nothing(folder: RunFolder) -> None:
    reach(folder, "after_output", 1)
    assert not folder.journal.path.exists()


def test_a_failpoint_of_a_folder_that_is_gone_does_nothing(tmp_path: Path) -> None:
    reach(RunFolder(tmp_path / "none"), "after_output", 1)
    assert list(tmp_path.iterdir()) == []


def test_an_armed_failpoint_raises_once_and_says_so_first(folder: RunFolder) -> None:
    arm(folder, "after_output", Action.RAISE)
    with pytest.raises(FailpointError, match="failpoint after_output fired in batch 4"):
        reach(folder, "after_output", 4, attempt=2)
    reach(folder, "after_output", 5)
    (event,) = folder.journal.all(FailpointFired)
    assert (event.failpoint, event.batch, event.action, event.attempt) == ("after_output", 4, "raise", 2)
    assert armed(folder) == []


def test_only_the_failpoint_that_was_armed_fires(folder: RunFolder) -> None:
    arm(folder, "after_output", Action.RAISE)
    reach(folder, "after_offset_commit", 1)
    assert armed(folder) == ["after_output"]


def test_a_failpoint_armed_for_a_batch_waits_for_it(folder: RunFolder) -> None:
    arm(folder, "after_output", Action.RAISE, batch=0)
    for batch in (1, 2):
        reach(folder, "after_output", batch)
    with pytest.raises(FailpointError):
        reach(folder, "after_output", 0)


def test_a_disarmed_failpoint_says_whether_it_was_still_armed(folder: RunFolder) -> None:
    arm(folder, "after_output", Action.RAISE)
    assert disarm(folder, "after_output")
    assert not disarm(folder, "after_output")
    reach(folder, "after_output", 1)


def test_a_failpoint_that_fired_can_be_armed_again(folder: RunFolder) -> None:
    for _ in range(2):
        arm(folder, "after_output", Action.RAISE)
        with pytest.raises(FailpointError):
            reach(folder, "after_output", 1)
    assert len(folder.journal.all(FailpointFired)) == 2


def test_among_many_processes_one_fires(folder: RunFolder) -> None:
    arm(folder, "after_output", Action.RAISE)
    command = [sys.executable, "-c", REACHES, str(folder.path)]
    runners = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) for _ in range(4)]
    for runner in runners:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "ready\n"
    (folder.path / "go").touch()
    codes = []
    for runner in runners:
        runner.communicate(timeout=60)
        codes.append(runner.returncode)
    assert sorted(codes) == [0, 0, 0, 7]
    assert len(folder.journal.all(FailpointFired)) == 1


def _announce(folder: RunFolder, **pids: int) -> None:
    """A ``driver.json`` as the driver writes it."""
    told: dict[str, float] = {"start": 1, **{f"{role}_pid": pid for role, pid in pids.items()}}
    told |= {f"{role}_created": psutil.Process(pid).create_time() for role, pid in pids.items()}
    (folder.path / "driver.json").write_text(json.dumps(told))


@pytest.mark.parametrize(("action", "dies"), [(Action.KILL_EXECUTOR, True), (Action.RAISE, False)])
def test_a_step_that_a_jvm_passes_fires_for_that_process(folder: RunFolder, action: Action, dies: bool) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        arm(folder, "after_prepare", action)
        words = ["after_prepare", "4", "--process", str(other.pid), "--attempt", "2"]
        done = subprocess.run([sys.executable, "-m", "streamproof.engines.spark.reach", str(folder.path), *words], cwd=ROOT, check=False)
        assert done.returncode != 0
        (event,) = folder.journal.all(FailpointFired)
        assert (event.pid, event.batch, event.attempt, event.action) == (other.pid, 4, 2, action)
        if dies:
            assert other.wait(10) == -signal.SIGKILL
        else:
            assert other.poll() is None
    finally:
        other.kill()
        other.wait(10)


def test_a_process_that_got_the_pid_of_a_driver_is_not_killed(folder: RunFolder) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (folder.path / "driver.json").write_text(
            json.dumps({"jvm_pid": None, "jvm_created": None, "python_pid": other.pid, "python_created": 1.0})
        )
        kill_driver(folder)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait(10)


def test_a_second_failpoint_waits_until_the_first_has_fired_and_the_driver_was_started_again(folder: RunFolder) -> None:
    (folder.path / "driver.json").write_text('{"start": 3}')
    arm(folder, "second", Action.RAISE, after="first")
    arm(folder, "first", Action.RAISE)
    reach(folder, "second", 1)
    with pytest.raises(FailpointError):
        reach(folder, "first", 1)
    reach(folder, "second", 1)  # by another task of the same moment
    (folder.path / "driver.json").write_text('{"start": 4}')
    with pytest.raises(FailpointError):
        reach(folder, "second", 1)


def test_a_failpoint_armed_for_an_attempt_waits_for_it(folder: RunFolder) -> None:
    arm(folder, "x", Action.RAISE, attempt=1)
    reach(folder, "x", 1, attempt=0)
    with pytest.raises(FailpointError):
        reach(folder, "x", 1, attempt=1)


def test_the_kill_ends_jvm_python_and_whoever_reached_it_after_it_was_journaled(folder: RunFolder) -> None:
    driver = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    try:
        _announce(folder, jvm=driver[0].pid, python=driver[1].pid)
        arm(folder, "x", Action.KILL_DRIVER)
        reached = subprocess.run([sys.executable, "-c", REACHES_ONCE, str(folder.path)], cwd=ROOT, timeout=60, check=False)
        assert [process.wait(10) for process in driver] == [-signal.SIGKILL] * 2
        assert reached.returncode == -signal.SIGKILL
        assert [event.failpoint for event in folder.journal.all(FailpointFired)] == ["x"]
    finally:
        for process in driver:
            process.kill()
            process.wait(10)


def test_the_kill_is_not_stopped_by_a_driver_that_is_gone_already(folder: RunFolder) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    _announce(folder, jvm=gone.pid, python=gone.pid)
    gone.wait(30)
    arm(folder, "x", Action.KILL_DRIVER)
    assert (
        subprocess.run([sys.executable, "-c", REACHES_ONCE, str(folder.path)], cwd=ROOT, timeout=60, check=False).returncode
        == -signal.SIGKILL
    )


def test_a_disarmed_failpoint_costs_less_than_a_tenth_of_a_millisecond(folder: RunFolder) -> None:
    best = min(timeit.repeat(lambda: reach(folder, "after_output", 1), number=200, repeat=10)) / 200
    assert best < 100e-6


def test_names_of_failpoints_are_told_apart_and_explained() -> None:
    for strategy in STRATEGIES.values():
        names = [point.name for point in strategy.failpoints]
        assert len(set(names)) == len(names)
        assert all(point.at in list(Site) and point.actions and point.window for point in strategy.failpoints)


# --- holds --------------------------------------------------------------------------------------------------------------------------


def _reacher(folder: RunFolder) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", REACHES_ONCE, str(folder.path)], cwd=ROOT)


def _wait_until_held(folder: RunFolder) -> FailpointHeld:
    deadline = time.monotonic() + 60
    while not (events := folder.journal.all(FailpointHeld)):
        assert time.monotonic() < deadline, "nobody was held"
        time.sleep(0.01)
    return events[0]


def test_whoever_reaches_a_hold_stands_there_until_it_is_released(folder: RunFolder) -> None:
    hold(folder, "x")
    held = _reacher(folder)
    event = _wait_until_held(folder)
    assert (event.failpoint, event.batch, event.pid) == ("x", 1, held.pid)
    assert (held.poll(), holds(folder, "x"), armed(folder)) == (None, True, [])
    assert _reacher(folder).wait(60) == 0, "only one is held"
    disarm(folder, "x")
    assert held.wait(60) == 0
    assert not holds(folder, "x")
    assert [event.name for event in folder.journal.events()] == ["failpoint_held", "failpoint_released"]


def test_a_hold_ends_by_itself_after_its_bound(folder: RunFolder) -> None:
    hold(folder, "x", bound_s=0.2)
    reach(folder, "x", 4)
    (event,) = folder.journal.all(FailpointReleased)
    assert 0.2 <= event.after_s < 10
    assert not holds(folder, "x")


def test_who_dies_at_a_hold_has_not_gone_on(folder: RunFolder) -> None:
    hold(folder, "x")
    held = _reacher(folder)
    _wait_until_held(folder)
    held.kill()
    held.wait(10)
    assert holds(folder, "x")
    assert folder.journal.all(FailpointReleased) == []


def test_everything_is_disarmed_at_once(folder: RunFolder) -> None:
    arm(folder, "one", Action.RAISE)
    hold(folder, "two")
    hold(folder, "x")
    held = _reacher(folder)
    _wait_until_held(folder)
    disarm_all(folder)
    assert held.wait(60) == 0
    reach(folder, "one", 1)
    reach(folder, "two", 1)
    assert len(folder.journal.all(FailpointHeld)) == 1
