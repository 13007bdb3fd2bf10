"""A driver is held inside a watched window: only while the window is open, and never for longer than its bound."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from streamproof.engines.spark.registry import STRATEGIES
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import Aborted, FailpointHeld
from streamproof.faults.fault import FaultError
from streamproof.faults.process import hold
from streamproof.jobs.context import RunContext, RunEnded
from tests.support.jobs import run_context, spark_job


class Window:
    """A watch that sees batch 7 and, each time it looks again, the next of ``still``."""

    def __init__(self, *still: bool) -> None:
        self._still = list(still)

    def entered(self) -> int | None:
        return 7 if self._still else None

    def still(self) -> bool:
        return self._still.pop(0)


@pytest.fixture
def driver() -> Iterator[psutil.Process]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield psutil.Process(child.pid)
    child.kill()
    child.wait(10)


@pytest.fixture
def context(tmp_path: Path, driver: psutil.Process) -> RunContext:
    folder = RunFolder.create(tmp_path / "run")
    (folder.path / "driver.json").write_text(json.dumps({"jvm_pid": driver.pid}))
    job = spark_job(folder)
    job.write()
    return run_context(folder, job=job)


def _watches(monkeypatch: pytest.MonkeyPatch, window: Window) -> None:
    monkeypatch.setattr(type(STRATEGIES["checkpoint"]), "watch", lambda self, job, step: window)


def _stopped(driver: psutil.Process) -> bool:
    deadline = time.monotonic() + 5
    while driver.status() != psutil.STATUS_STOPPED and time.monotonic() < deadline:
        time.sleep(0.01)
    return driver.status() == psutil.STATUS_STOPPED


def test_the_driver_is_stopped_while_the_window_is_open(
    context: RunContext, driver: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    _watches(monkeypatch, Window(True))
    with hold.held(context, "after_output") as driver_hold:
        assert _stopped(driver)
        assert driver_hold.still()
        assert (driver_hold.event.batch, driver_hold.event.pid) == (7, driver.pid)
    assert driver.status() != psutil.STATUS_STOPPED
    assert [event.failpoint for event in context.folder.journal.all(FailpointHeld)] == ["after_output"]


def test_a_window_that_closed_before_the_driver_was_stopped_is_not_the_one(
    context: RunContext, driver: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = Window(False, False, True)
    _watches(monkeypatch, window)
    with hold.window(context, "after_output"):
        assert not window._still
        assert _stopped(driver)


def test_a_driver_that_is_held_too_long_goes_on_by_itself(
    context: RunContext, driver: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "HOLD_S", 0.3)
    _watches(monkeypatch, Window(True))
    with hold.held(context, "after_output") as driver_hold:
        assert _stopped(driver)
        time.sleep(1.0)
        assert not driver_hold.still()


def test_a_driver_that_was_killed_where_it_was_held_has_not_gone_on(
    context: RunContext, driver: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    _watches(monkeypatch, Window(True))
    with hold.held(context, "after_output") as driver_hold:
        driver.kill()
        assert driver_hold.still()


def test_a_window_that_never_opens_is_given_up(context: RunContext, driver: psutil.Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold, "REACH_S", 0.2)
    _watches(monkeypatch, Window())
    with pytest.raises(FaultError, match="after_output was not seen"), hold.window(context, "after_output"):
        pytest.fail("nothing is held there")
    context.folder.journal.append(Aborted(reason="stopped"))
    with pytest.raises(RunEnded, match="stopped"), hold.window(context, "after_output"):
        pytest.fail("the run has ended")
