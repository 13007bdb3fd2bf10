"""Late writers: who could still write when the output is drained, and whether somebody did.

A drain reads what was delivered once the job is over. That is all there is only when nobody writes any more. So each process of the job has
ended before: it gets ``GRACE_S`` to end by itself (executors do once their driver is gone) and is killed then (``writers_ended`` in the
journal). What is left are writers that no signal reaches: a request that waits in a server, a process on another machine. Against these the
sink says where the output ends (``Sink.end``), and before the verdict it is asked again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time

import psutil

from streamproof.engines.lookup import engine_of, read_job
from streamproof.evidence.files import milliseconds
from streamproof.evidence.folder import EvidenceError, RunFolder, write_atomically
from streamproof.evidence.journal import DriverStarted, Restored, TestbedTaken, WritersEnded
from streamproof.jobs.engine import EXECUTOR_MARK, RUN_MARK
from streamproof.jobs.job import Job
from streamproof.jobs.profile import Role
from streamproof.sinks import outputs
from streamproof.testbed import chosen
from streamproof.testbed.process import marked, runs, stop_all

GRACE_S = 5.0
POLL_S = 0.05
SAME_S = 5.0  # a process that is older than a driver is none of its session: the number of the session was another's then
log = logging.getLogger("streamproof.run.writers")


def end_writers(folder: RunFolder) -> WritersEnded:
    """End every process of the run's job; journal and return how they ended. Raises TestbedError when new ones keep appearing."""
    begun, job = time.monotonic(), read_job(folder)
    seen: set[psutil.Process] = set()
    while (processes := _processes(folder, job)) and time.monotonic() - begun < GRACE_S:
        seen |= processes
        time.sleep(POLL_S)
    killed = set(stop_all(lambda: _processes(folder, job), f"run {folder.name}")) if processes else set()
    ended = WritersEnded(by_themselves=len(seen - killed), killed=len(killed), seconds=round(time.monotonic() - begun, 3))
    folder.journal.append(ended)
    if killed:
        log.warning("%d processes of the job were still there %.0f s after its end, and were killed", len(killed), GRACE_S)
    return ended


def _processes(folder: RunFolder, job: Job) -> set[psutil.Process]:
    """The processes of the job that run now: those with a mark of the run, those that its engine finds, those of its drivers' sessions."""
    engine = engine_of(job)
    found = {process for mark in (RUN_MARK, EXECUTOR_MARK) for process in marked(**{mark: folder.name})}
    found |= {process for role in Role for process in engine.processes(job, role)}
    return {process for process in found | _of_sessions(folder) if runs(process)}


def _of_sessions(folder: RunFolder) -> set[psutil.Process]:
    """The processes that a driver left in its session, also those that forgot their environment."""
    started = {event.pid: milliseconds(event.at) / 1000 for event in folder.journal.all(DriverStarted) if event.pid is not None}
    found, own = set(), os.getsid(0)
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            session = os.getsid(process.pid)
            if session in started and session != own and process.create_time() >= started[session] - SAME_S:
                found.add(process)
    return found


def wrote_since(folder: RunFolder) -> str | None:
    """What is in the output now that was not when it was drained; None when nothing is, or when the output is not there any more."""
    drained = folder.read_json(folder.drain)
    taken = isinstance(folder.journal.last(TestbedTaken, Restored), TestbedTaken)
    if "end" not in drained or not taken or not (folder.path / "job.json").exists():
        return None
    job = Job.read(folder)
    try:
        end = json.loads(json.dumps(outputs.of(job).end(job, chosen.current(folder))))
    except EvidenceError:  # the output was deleted
        return None
    return None if end == drained["end"] else f"it ended at {_short(drained['end'])}, and ends at {_short(end)} now"


def deny(folder: RunFolder, reason: str) -> None:
    """Say in ``drain.json`` that the drain did not reach the end."""
    drained = folder.read_json(folder.drain)
    write_atomically(folder.drain, json.dumps({**drained, "complete": False, "reason": drained["reason"] or reason}))


def _short(end: object) -> str:
    text = json.dumps(end)
    return text if len(text) <= 200 else f"{text[:200]}..."
