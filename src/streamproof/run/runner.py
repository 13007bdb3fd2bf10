"""A whole run in one process: what ``streamproof run`` does, stage by stage."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType, MappingProxyType
from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import Aborted, PhaseBegan, TestbedTaken
from streamproof.evidence.stages import REPORT, RESTORE, SEQUENCE, TOGETHER
from streamproof.experiment.model import Experiment
from streamproof.jobs.context import RunEnded
from streamproof.jobs.job import Job
from streamproof.run import stages, supervisor
from streamproof.sinks import outputs
from streamproof.suites.evaluate import Evaluation, is_warm
from streamproof.suites.evaluate import evaluate as evaluate_here
from streamproof.suites.worker import EvaluationWorker
from streamproof.testbed import chosen
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.timing.baseline import attach
from streamproof.verdict.verdict import Verdict

LOOK_S = 0.5
log = logging.getLogger("streamproof.run.runner")


def run(
    experiment: Experiment,
    name: str | None = None,
    *,
    baseline: RunFolder | None = None,
    evaluate: Callable[[RunFolder], Evaluation] | None = None,
    watch: Callable[[RunFolder, Testbed], None] | None = None,
    spark: str | None = None,
) -> RunFolder:
    """Run an experiment from prepare to restore and return its folder, whose ``verdict.json`` says how it ended.

    ``baseline`` is a judged run to compare this one with; ``evaluate`` evaluates the expectations; when absent, this process does where it
    has imported Great Expectations before, and else a process of its own, which imports it beside the run; ``watch`` is called once the run
    is prepared; ``spark`` is the master of a Spark that compares the histories, this process does when absent.

    A stage that fails makes the run an ERROR; SIGINT and SIGTERM make it ABORTED. Raises what ``prepare`` raises before anything was
    started: TestbedError, TestbedBusy.
    """
    folder = stages.create(experiment, name, owner=os.getpid())
    if evaluate is None and is_warm():
        evaluate = evaluate_here
    if baseline is not None:
        attach(folder, baseline, Verdict.read(baseline))
    with _signals(folder), contextlib.closing(EvaluationWorker()) as evaluation:
        options: dict[str, dict[str, Any]] = {"verify": {"spark": spark}, "expect": {"evaluate": evaluate or evaluation.evaluate}}
        try:
            for group in SEQUENCE:
                if group == TOGETHER:
                    side_by_side(folder, evaluation if evaluate is None else None)
                else:
                    (stage,) = group
                    stages.perform(stage, folder, **options.get(stage, {}))
                if group == ("prepare",) and watch is not None:
                    watch(folder, chosen.current(folder))
        except RunEnded as ended:
            log.error("the run ended: %s", ended)
        except Exception:
            if folder.journal.last(TestbedTaken) is None:
                raise
            log.exception("the run failed")
        finally:
            stages.perform(RESTORE, folder)
            stages.perform(REPORT, folder)
    return folder


def side_by_side(
    folder: RunFolder, evaluation: EvaluationWorker | None = None, options: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> None:
    """The three stages that make a run, each with its ``options``. The first failure ends all of them (they watch the journal) and is
    raised.

    A run that is stopped need not wait until its stages have looked: its driver is killed at once. What stops this thread itself (Airflow's
    timeout is raised in it) is journaled, or the stages would go on without it.

    What comes after them is loaded with the recovery phase, ``evaluation`` in a process of its own: importing Great Expectations takes
    seconds, which the run does not wait for then.
    """
    output = outputs.of(Job.read(folder))
    with ThreadPoolExecutor(len(TOGETHER), thread_name_prefix="stage") as pool:
        jobs = [pool.submit(stages.perform, stage, folder, **options.get(stage, {})) for stage in TOGETHER]
        try:
            while wait(jobs, timeout=LOOK_S).not_done:
                if folder.journal.last(Aborted) is not None:
                    supervisor.kill_drivers(folder)
                elif any(event.phase == "recovery" for event in folder.journal.all(PhaseBegan)):
                    output.load()
                    if evaluation is not None:
                        evaluation.start()
        except BaseException as stopped:
            folder.journal.append(Aborted(reason=f"it was stopped: {type(stopped).__name__}"))
            supervisor.kill_drivers(folder)
            raise
    errors = [error for job in jobs if (error := job.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, RunEnded)):
        raise error


@contextmanager
def _signals(folder: RunFolder) -> Iterator[None]:
    """The first SIGINT or SIGTERM journals ``aborted``, which ends every stage; a second one is as ever."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        for signal_number, earlier in before.items():
            signal.signal(signal_number, earlier)
        folder.journal.append(Aborted(reason=f"stopped by {signal.Signals(number).name}"))

    for stopping in (signal.SIGINT, signal.SIGTERM):
        before[stopping] = signal.signal(stopping, handle)
    try:
        yield
    finally:
        for restored, earlier in before.items():
            signal.signal(restored, earlier)
