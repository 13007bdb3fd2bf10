"""A hold: the job reaches a step of its commit protocol, or a window between two as seen from outside, and is kept there while something
is broken.

Steps that carry a failpoint hold whoever passes them first, a task or the driver; all others go on. A watched step lies inside Spark: the
driver is stopped (SIGSTOP) while its window is seen to be open. Either way the job goes on by itself after ``HOLD_S``, and what was broken
after that was not broken at the step.

In a window it is a message at its edge that is held. Between two files there is none, and nothing is held.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from streamproof.engines.spark import failpoints
from streamproof.engines.spark.failpoints import HOLD_S
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.evidence.journal import FailpointHeld
from streamproof.faults.fault import FaultError, RunContext
from streamproof.faults.process import window_fault
from streamproof.jobs import windows
from streamproof.jobs.failpoint import Site
from streamproof.jobs.profile import Role
from streamproof.jobs.windows import Strike
from streamproof.testbed.process import signal_recorded, stopped

REACH_S = 120.0
WATCH_S = 0.001


@dataclass(frozen=True)
class Hold:
    """Which process is held where, as it was journaled. ``still`` says whether it is still there (or died there); None where nothing can be
    held, and the job goes on."""

    event: FailpointHeld
    still: Callable[[], bool] | None
    window: str | None = None
    since_ns: int | None = None
    """When it was held in the window, by ``time.time_ns``."""

    def strike(self) -> Strike | None:
        """Asked as soon as something was broken there."""
        return None if self.window is None else Strike(self.window, self.since_ns or time.time_ns())


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


def stopped_at(run: RunContext, step: str) -> FailpointHeld:
    """Stop every process of the driver (SIGSTOP) at ``step``, one of the driver's or a watched one, and leave it so.

    Raises FaultError when the step is not reached within ``REACH_S``.
    """
    if run.profile.failpoint(step).at is not Site.WATCHED:
        with held(run, step) as hold:
            signal_recorded(run.recorded(Role.DRIVER), signal.SIGSTOP)
            return hold.event
    job = SparkJob.read(run.folder)
    watch, deadline = STRATEGIES[job.strategy].watch(job, step), time.monotonic() + REACH_S
    while time.monotonic() < deadline:
        batch = watch.entered()
        if batch is None:
            run.check_alive()
            time.sleep(WATCH_S)
            continue
        processes = run.recorded(Role.DRIVER)
        signal_recorded(processes, signal.SIGSTOP)
        if watch.still():
            event = FailpointHeld(failpoint=step, batch=batch, pid=processes[0]["pid"])
            run.folder.journal.append(event)
            return event
        signal_recorded(processes, signal.SIGCONT)
    raise FaultError(f"{step} was not seen within {REACH_S:.0f} s")


@contextlib.contextmanager
def held_in(run: RunContext, window: str, fault: str, thrown_away: bool) -> Iterator[Hold]:
    """The job is in the window, or the first of several, while the body runs, a message at its edge held for the ``fault``; between two
    files nothing can be held, and it goes on. The message is ``thrown_away`` afterwards, as one that was on its way when its connection
    ended; else it goes on.

    Raises FaultError when the job does not come there in time.
    """
    names = [window_fault.drawn(run)] if window == windows.ANY else window_fault.meant(run, fault, window)
    target, batch = {"rule": f"window-{uuid.uuid4().hex[:8]}"}, run.progress.batches()
    try:
        window, message = window_fault.come_to(run, target, names)
        event = FailpointHeld(failpoint=window, batch=batch, pid=run.recorded(Role.DRIVER)[0]["pid"])
        if message is None:
            yield Hold(event, None, window)
            return
        held, messages = message.held, run.testbed.messages
        yield Hold(event, lambda: any(one.id == held for one in messages.state().held), window, time.time_ns())
        if thrown_away:
            window_fault.throw_away(run, message)
    finally:
        run.testbed.messages.disarm(target["rule"])


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
