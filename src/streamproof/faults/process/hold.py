"""A hold: the job reaches a step of its commit protocol, and is kept there while something is broken.

Steps that carry a failpoint hold whoever passes them first, a task or the driver; all others go on. A watched step lies inside Spark: the
driver is stopped (SIGSTOP) while its window is seen to be open. Either way the job goes on by itself after ``HOLD_S``, and what was broken
after that was not broken at the step.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from streamproof.engines.spark import failpoints
from streamproof.engines.spark.failpoints import HOLD_S
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.evidence.journal import FailpointHeld
from streamproof.faults.fault import FaultError, RunContext
from streamproof.jobs.failpoint import Site
from streamproof.testbed.process import stopped

REACH_S = 120.0
WATCH_S = 0.001


@dataclass(frozen=True)
class Hold:
    """Which process is held where, as it was journaled. ``still`` says whether it is still there (or died there)."""

    event: FailpointHeld
    still: Callable[[], bool]


@contextlib.contextmanager
def held(run: RunContext, step: str, bound_s: float | None = None) -> Iterator[Hold]:
    """The job is held at ``step`` while the body runs, for ``bound_s`` at most (``HOLD_S``, and so at a watched step).

    Raises FaultError when the step is not reached within ``REACH_S``.
    """
    site = run.profile.failpoint(step).at
    journal = run.folder.journal
    if site == Site.WATCHED:
        with window(run, step) as hold:
            journal.append(hold.event)
            yield hold
        return
    before = len(journal.all(FailpointHeld))
    failpoints.hold(run.folder, step, HOLD_S if bound_s is None else bound_s)
    try:
        event = run.wait_for(f"{step} to be reached", lambda: journal.all(FailpointHeld)[before:], REACH_S)[0]
        yield Hold(event, lambda: failpoints.holds(run.folder, step))
    finally:
        failpoints.disarm(run.folder, step)


@contextlib.contextmanager
def window(run: RunContext, step: str) -> Iterator[Hold]:
    """The driver is stopped inside the window of the watched ``step``, which is open; the pid is that of its JVM."""
    job = SparkJob.read(run.folder)
    watch = STRATEGIES[job.strategy].watch(job, step)
    deadline, over = time.monotonic() + REACH_S, threading.Event()
    while time.monotonic() < deadline:
        batch = watch.entered()
        if batch is None:
            run.check_alive()
            time.sleep(WATCH_S)
            continue
        jvm = int(run.folder.read_json(run.folder.path / "driver.json")["jvm_pid"])
        over.clear()
        bound = threading.Timer(HOLD_S, _let_go, [jvm, over])
        os.kill(jvm, signal.SIGSTOP)
        bound.start()
        try:
            if watch.still():
                yield Hold(FailpointHeld(failpoint=step, batch=batch, pid=jvm), lambda: not over.is_set())
                return
        finally:
            bound.cancel()
            _let_go(jvm, over)
    raise FaultError(f"{step} was not seen within {REACH_S:.0f} s")


def driver_stopped(driver: dict[str, Any]) -> contextlib.AbstractContextManager[None]:
    """No process of that ``driver.json`` goes on while the body runs."""
    return stopped(failpoints.driver_processes(driver))


def wake(driver: dict[str, Any]) -> None:
    """Let those processes go on that somebody who is gone has stopped."""
    for process in failpoints.driver_processes(driver):
        process.resume()


def _let_go(pid: int, over: threading.Event) -> None:
    over.set()
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
