"""A runner that gets a SIGKILL at a chosen moment of its run, and what must not be left of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from streamproof import settings
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import DriverReady, Event, InjectionInjected, StageStarted, TestbedTaken
from streamproof.kafka.transactions import Coordinator
from streamproof.run import lock, watchdog
from streamproof.sinks.postgres import tables as output
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import marked
from tests.support.checkout import ROOT

WAIT_S = 120.0
LOOK_S = 0.002
GIVEN_BACK_S = watchdog.GRACE_S + 60.0


def begun(stage: str) -> Callable[[RunFolder], bool]:
    return lambda folder: any(event.stage == stage for event in folder.journal.all(StageStarted))


def journaled(event: type[Event]) -> Callable[[RunFolder], bool]:
    return lambda folder: folder.journal.last(event) is not None


MOMENTS: dict[str, Callable[[RunFolder], bool]] = {
    "prepare": journaled(TestbedTaken),
    "steady": journaled(DriverReady),
    "impact": journaled(InjectionInjected),
    **{stage: begun(stage) for stage in ("drain", "verify", "expect", "restore", "report")},
}


@dataclass(frozen=True)
class Killed:
    """A run whose runner is gone; ``family`` are the processes that it had started by then."""

    folder: RunFolder
    family: list[psutil.Process]


def kill_runner_at(moment: str, experiment: dict[str, Any], path: Path) -> Killed:
    """``streamproof run`` the experiment and kill it at one of ``MOMENTS``."""
    file = path / "experiment.yaml"
    file.write_text(yaml.safe_dump(experiment))
    before = set(settings.runs().glob("*"))
    process = subprocess.Popen(
        [sys.executable, "-m", "streamproof.cli.main", "run", str(file)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + WAIT_S
    try:
        while not any(MOMENTS[moment](RunFolder(run)) for run in set(settings.runs().glob("*")) - before):
            assert process.poll() is None, f"the run ended before {moment}"
            assert time.monotonic() < deadline, f"{moment} was not reached in time"
            time.sleep(LOOK_S)
        family = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.wait(10)
    (run,) = set(settings.runs().glob("*")) - before
    return Killed(RunFolder(run), family)


def wait_until_given_back(killed: Killed) -> None:
    """Wait for the watchdog, which is to do it without anybody asking."""
    deadline = time.monotonic() + GIVEN_BACK_S
    while lock.holder() is not None or any(_runs(process) for process in killed.family):
        assert time.monotonic() < deadline, f"not given back within {GIVEN_BACK_S:.0f} s: {lock.holder()}, {killed.family}"
        time.sleep(0.1)


def assert_nothing_is_left(killed: Killed, testbed: Testbed) -> None:
    """No process, no toxic, no cut link, no open or prepared transaction, and the lock is free."""
    left = [process for process in killed.family if _runs(process)]
    left += [process for mark in ("STREAMPROOF_RUN", "STREAMPROOF_EXECUTOR_OF") for process in marked(**{mark: killed.folder.name})]
    assert [process.cmdline() for process in left] == []
    assert {name: testbed.proxies.toxics(name) for name in testbed.links} == {name: {} for name in testbed.links}
    assert all(testbed.proxies.enabled(name) for name in testbed.links)
    with Coordinator(testbed.direct_kafka) as coordinator:
        assert coordinator.ongoing("") == []
    with output.connect(testbed.direct_postgres, autocommit=True) as connection:
        assert output.prepared(connection, "") == []
    assert lock.holder() is None


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
