"""What an engine is: it answers for one kind of job. The packages of ``streamproof.engines`` are the engines there are."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil
from pydantic import BaseModel

from streamproof.jobs.job import Job
from streamproof.jobs.profile import JobProfile, Role
from streamproof.testbed.embedded import Testbed

RUN_MARK = "STREAMPROOF_RUN"
"""The variable that every process of a run's driver has in its environment: the run's name."""
START_MARK = "STREAMPROOF_RUN_START"
"""The same: the number of the start."""
EXECUTOR_MARK = "STREAMPROOF_EXECUTOR_OF"
"""The same for the run's executors, which end by themselves once their driver is gone."""


@dataclass(frozen=True)
class Launch:
    """How a start of a job is launched: a command, its whole environment, its working folder."""

    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path


@dataclass(frozen=True)
class ProgressSource:
    """Where an engine reads a job's progress from, in words; and what to do where nothing is seen there."""

    where: str
    when_nothing: str


class Engine(Protocol):
    """Launches the starts of a job, finds its processes, knows how far it has come, and stops it.

    A start is supervised and started again by the run (``streamproof.run.supervisor``), which gives each process of its driver the mark of
    the run.
    """

    name: str
    job_type: type[Job]
    spec_type: type[BaseModel] | None
    """A :class:`JobSpec` that validates what an experiment says of such a job in ``job``; None where an experiment says it otherwise."""
    jars: Path | None
    """A file in the format of ``testbed/jars.lock`` with the jars that such a job runs on, which ``streamproof setup NAME`` fetches; None
    where it needs nothing but what every run needs."""

    def launch(self, job: Job, testbed: Testbed) -> Launch:
        """How the start ``job.start`` is launched."""

    def processes(self, job: Job, role: Role) -> list[psutil.Process]:
        """The processes that play a role now, the one that does most of the work first. Empty between two starts."""

    def known(self, job: Job, role: Role, testbed: Testbed) -> frozenset[str]:
        """Who plays a role now as the engine's own interface says it, by names that are given once. Empty where it has none, or while it
        does not answer."""

    def leader(self, job: Job, role: Role) -> int | None:
        """The pid of the process that leads those in a role now, where the others only stand by. None where they do not, or while none
        leads."""

    def topics(self, job: Job, testbed: Testbed) -> list[str]:
        """The topics that such a job makes for itself, beside its input and its output: they go with the run. Raises TestbedError."""

    def progress(self, job: Job, testbed: Testbed) -> AbstractContextManager[Callable[[], None]]:
        """While it is entered, the job's committed source offsets are appended to ``progress.jsonl``, and ``driver_ready`` is journaled
        for each start that got to work. What it gives is called again and again, and raises what has put an end to that."""

    def progress_source(self, job: Job, testbed: Testbed) -> ProgressSource:
        """Where :meth:`progress` looks. Asked while the testbed still has what the job left there."""

    def stop(self, job: Job, child: subprocess.Popen[bytes]) -> None:
        """Ask the running start to end by itself. May be repeated."""

    def stopped(self, code: int) -> bool:
        """Whether a start that was asked to end and ended with exit code ``code`` ended as it was asked."""

    def recover(self, job: Job) -> dict[str, Any]:
        """Finish or undo what a dead start left in the sink. Returns what was done, for the journal. May be called whenever no start of
        the job runs, and repeated."""

    def disarm(self, job: Job) -> None:
        """Take back what faults have put into the job to act at a step of its protocol. May be repeated."""

    def answers(self, job: Job) -> bool:
        """Whether the start that was ready last answers what faults ask of it. True where faults ask nothing."""


class JobSpec(Protocol):
    """A job as an experiment describes it: which engine runs it, what it promises, how it becomes a :class:`Job`."""

    @property
    def profile(self) -> JobProfile: ...

    def check(self) -> None:
        """Raises BadInput naming a file of the job that is not there. Asked before anything is started."""

    @property
    def named_topics(self) -> dict[str, str]:
        """The topics of the job whose names are fixed, by the field of :class:`Job`; the others have names of the run's own."""

    def job(self, testbed: Testbed, **common: Any) -> Job:
        """The job itself; ``common`` are the fields of :class:`Job` that do not depend on the engine."""
