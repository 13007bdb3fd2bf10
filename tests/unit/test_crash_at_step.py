"""``crash_at_step`` believes only what its own injection did: not an earlier firing, not a pid that became another's."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamproof.engines.spark import failpoints
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import DriverExited, DriverReady, DriverStarted, FailpointFired
from streamproof.faults.fault import FaultError
from streamproof.faults.process.crash_at_step import CrashAtStep, CrashAtStepParameters
from streamproof.jobs.context import RunContext
from streamproof.testbed.process import process_record, same_process
from tests.support.jobs import run_context, spark_job

FAULT, PARAMETERS = CrashAtStep(), CrashAtStepParameters(step="after_output")


@pytest.fixture
def driver() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield child
    child.kill()
    child.wait(10)


@pytest.fixture
def context(tmp_path: Path, driver: subprocess.Popen[bytes]) -> RunContext:
    folder = RunFolder.create(tmp_path / "run")
    job = spark_job(folder, "offset_commit")
    _ready(folder, 1, driver.pid)
    return run_context(folder, job=job)


def _ready(folder: RunFolder, start: int, pid: int) -> None:
    created = psutil.Process(pid).create_time()
    told = {"jvm_pid": pid, "python_pid": pid, "jvm_created": created, "python_created": created, "start": start}
    (folder.path / "driver.json").write_text(json.dumps(told))
    folder.journal.append(DriverReady(start=start, application="app-1", ui="http://127.0.0.1:1"))


def _fire(folder: RunFolder, batch: int) -> None:
    """As a driver that reaches the step: once it is armed, it says so and dies."""
    while not failpoints.armed(folder):
        time.sleep(0.01)
    failpoints.arm(folder, "after_output", failpoints.Action.RAISE)  # the kill is the test's, it must outlive it
    with pytest.raises(failpoints.FailpointError):
        failpoints.reach(folder, "after_output", batch)


def _injected(context: RunContext, driver: subprocess.Popen[bytes], batch: int) -> list[dict[str, Any]]:
    target = FAULT.aim(context, PARAMETERS)
    firing = threading.Thread(target=_fire, args=(context.folder, batch))
    firing.start()
    FAULT.inject(context, PARAMETERS, target)
    firing.join(10)
    driver.kill()
    driver.wait(10)
    with context.folder.progress.open("a") as file:
        file.write(json.dumps({"batch": batch, "start": target["start"] + 1, "rows": 1, "until": {}, "from": {}}) + "\n")
    return [check.to_json() for check in FAULT.evidence(context, PARAMETERS, target)]


def test_a_step_that_was_hit_before_must_be_reached_again(context: RunContext, driver: subprocess.Popen[bytes]) -> None:
    context.folder.journal.append(FailpointFired(failpoint="after_output", batch=3))
    checks = _injected(context, driver, 9)
    assert [check["passed"] for check in checks] == [True, True, True]
    assert checks[0]["detail"] == "in batch 9: raise"


def test_a_driver_that_has_ended_is_not_aimed_at(context: RunContext, driver: subprocess.Popen[bytes]) -> None:
    assert context.driver()["start"] == 1
    context.folder.journal.append(DriverExited(start=1))
    context.folder.journal.append(DriverStarted(start=2))
    with pytest.raises(FaultError, match="a driver that is ready"):
        replace(context, deadline=time.monotonic()).driver()
    _ready(context.folder, 2, driver.pid)
    assert FAULT.aim(context, PARAMETERS)["start"] == 2


def test_a_pid_that_became_anothers_is_gone(driver: subprocess.Popen[bytes]) -> None:
    recorded = process_record(psutil.Process(driver.pid))
    assert same_process(recorded) is not None
    assert same_process({**recorded, "created": recorded["created"] - 60}) is None
