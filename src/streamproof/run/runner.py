"""A whole run in one process: what ``streamproof run`` does, step by step."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType
from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.experiment.model import Experiment
from streamproof.jobs.context import RunEnded
from streamproof.jobs.job import Job
from streamproof.run import stages, supervisor
from streamproof.sinks import outputs
from streamproof.suites.evaluate import Evaluation
from streamproof.suites.worker import EvaluationWorker
from streamproof.testbed import chosen
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.timing.baseline import attach

PARALLEL = ("run_pipeline", "generate_load", "inject_faults")
LOOK_S = 0.5
log = logging.getLogger("streamproof.run.runner")


def run(
    found: Experiment,
    name: str | None = None,
    *,
    baseline: RunFolder | None = None,
    evaluate: Callable[[RunFolder], Evaluation] | None = None,
    watch: Callable[[RunFolder, Testbed], None] | None = None,
    spark: str | None = None,
) -> RunFolder:
    """Run an experiment from prepare to restore and return its folder, whose ``verdict.json`` says how it ended.

    ``baseline`` is a judged run to compare this one with; ``evaluate`` evaluates the expectations, in a process of its own when absent;
    ``watch`` is called once the run is prepared; ``spark`` is the master of a Spark that compares the histories, this process does when
    absent.

    A step that fails makes the run an ERROR; SIGINT and SIGTERM make it ABORTED. Raises what ``prepare`` raises before anything was
    started: TestbedError, TestbedBusy.
    """
    folder = stages.create(found, name, owner=os.getpid())
    if baseline is not None:
        attach(folder, baseline, stages.read_verdict(baseline))
    with _signals(folder), contextlib.closing(EvaluationWorker()) as evaluation:
        try:
            stages.perform("prepare", folder)
            if watch is not None:
                watch(folder, chosen.current(folder))
            _side_by_side(folder, evaluation if evaluate is None else None)
            stages.perform("drain", folder)
            stages.perform("verify", folder, spark=spark)
            stages.perform("expect", folder, evaluate=evaluate or evaluation.evaluate)
        except RunEnded as ended:
            log.error("the run ended: %s", ended)
        except Exception:
            if not folder.journal.events("testbed_taken"):
                raise
            log.exception("the run failed")
        finally:
            stages.perform("restore", folder)
            stages.perform("report", folder)
    return folder


def _side_by_side(folder: RunFolder, evaluation: EvaluationWorker | None) -> None:
    """The three steps that make a run. The first failure ends all of them (they watch the journal) and is raised.

    A run that is stopped need not wait until its steps have looked: its driver is killed at once. What stops this thread itself (Airflow's
    timeout is raised in it) is journaled, or the steps would go on without it.

    What comes after them is loaded with the recovery phase, ``evaluation`` in a process of its own: importing Great Expectations takes
    seconds, which the run does not wait for then.
    """
    output = outputs.of(Job.read(folder))
    with ThreadPoolExecutor(len(PARALLEL), thread_name_prefix="step") as pool:
        jobs = [pool.submit(stages.perform, step, folder) for step in PARALLEL]
        try:
            while wait(jobs, timeout=LOOK_S).not_done:
                events = folder.journal.events("phase", "aborted")
                if any(event["event"] == "aborted" for event in events):
                    supervisor.kill_drivers(folder)
                elif any(event["phase"] == "recovery" for event in events):
                    output.load()
                    if evaluation is not None:
                        evaluation.start()
        except BaseException as stopped:
            folder.journal.append("aborted", reason=f"it was stopped: {type(stopped).__name__}")
            supervisor.kill_drivers(folder)
            raise
    errors = [error for job in jobs if (error := job.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, RunEnded)):
        raise error


@contextmanager
def _signals(folder: RunFolder) -> Iterator[None]:
    """The first SIGINT or SIGTERM journals ``aborted``, which ends every step; a second one is as ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        for each, earlier in before.items():
            signal.signal(each, earlier)
        folder.journal.append("aborted", reason=f"stopped by {signal.Signals(number).name}")

    for stopping in (signal.SIGINT, signal.SIGTERM):
        before[stopping] = signal.signal(stopping, handle)
    try:
        yield
    finally:
        for each, earlier in before.items():
            signal.signal(each, earlier)
