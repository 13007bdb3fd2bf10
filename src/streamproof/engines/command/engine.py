"""The engine ``command``: any command line, supervised and started again.

A start is told where it works by placeholders in its command line and by environment variables (``placeholders``,
``environment``). It leads a process group of its own, which is what a fault kills; where several instances of the command run side by side,
each of them can be killed alone. Once every record was committed it gets SIGTERM,
and should end with exit code 0 or by that signal.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
from pydantic import BaseModel

from streamproof.engines import members
from streamproof.engines.command import group, spark_application, spark_checkpoint
from streamproof.engines.command.environment import environment, values
from streamproof.engines.command.following import Following, Source
from streamproof.engines.command.group import GroupOffsets
from streamproof.engines.command.job import CommandJob, CommandSpec
from streamproof.engines.command.output import DeliveredRecords
from streamproof.engines.command.placeholders import filled
from streamproof.engines.command.spark_checkpoint import SparkCheckpointFolder
from streamproof.engines.members import Member
from streamproof.evidence.journal import DriverReady
from streamproof.jobs.engine import RUN_MARK, Launch, ProgressSource
from streamproof.jobs.job import Job
from streamproof.jobs.profile import Role
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import marked

MEMBERS = "members.json"
INSTANCE = "STREAMPROOF_INSTANCE"
"""The variable that tells each instance of a command its number, from 1."""


class CommandEngine:
    name: str = "command"
    job_type: type[Job] = CommandJob
    spec_type: type[BaseModel] = CommandSpec
    jars: Path | None = None

    def launch(self, job: Job, testbed: Testbed) -> Launch:
        assert isinstance(job, CommandJob)
        job.state.mkdir(parents=True, exist_ok=True)
        known = values(job, testbed)
        return Launch(self.command(job, known), environment(job, testbed, known), Path(job.cwd))

    def command(self, job: CommandJob, known: Mapping[str, str]) -> list[str]:
        """The command line of a start; ``known`` is what the placeholders stand for."""
        command = [filled(part, known) for part in job.command]
        return members.command(job.state / MEMBERS, instances(job, command)) if job.instances > 1 else command

    def processes(self, job: Job, role: Role) -> list[psutil.Process]:
        if role is Role.DRIVER:
            return marked(**{RUN_MARK: job.run.name})
        if role in (Role.COORDINATOR, Role.WORKERS):
            return marked(**{RUN_MARK: job.run.name, members.ROLE_MARK: role})
        find = spark_application.executors if role is Role.EXECUTORS else spark_application.python_workers
        started = {event.application for event in job.run.journal.all(DriverReady)}
        return [process for application in started if application is not None for process in find(application)]

    def known(self, job: Job, role: Role, testbed: Testbed) -> frozenset[str]:
        """A command has no interface that says it."""
        return frozenset()

    def leader(self, job: Job, role: Role) -> int | None:
        return None

    def topics(self, job: Job, testbed: Testbed) -> list[str]:
        return []

    def progress(self, job: Job, testbed: Testbed) -> AbstractContextManager[Callable[[], None]]:
        assert isinstance(job, CommandJob)
        return Following(job, self.source(job, testbed), functools.partial(self._application, job))

    def source(self, job: CommandJob, testbed: Testbed) -> Source:
        """Where the job's commits are seen."""
        if job.follows_output:
            return DeliveredRecords(job, testbed)
        if not job.spark_checkpoint:
            return GroupOffsets(job, testbed.direct_kafka)
        return SparkCheckpointFolder(_checkpoint(job, testbed), job.input_topic)

    def _application(self, job: CommandJob) -> dict[str, str]:
        """Which application of Spark the running start drives, and where its UI is; nothing for a job without executors."""
        if not job.executors or (found := spark_application.running(self.processes(job, Role.DRIVER))) is None:
            return {}
        application, ui = found
        return {"application": application, "ui": ui}

    def progress_source(self, job: Job, testbed: Testbed) -> ProgressSource:
        assert isinstance(job, CommandJob)
        if job.spark_checkpoint:
            folder = _checkpoint(job, testbed)
            return ProgressSource(f"Spark's checkpoint {folder}", spark_checkpoint.why_nothing(folder))
        if job.follows_output:
            return ProgressSource("what it delivered", "have it read {input_topic} from the beginning, and deliver where `delivers` says")
        return ProgressSource(f"the consumer group {job.consumer_group}", group.why_nothing(job, testbed.direct_kafka))

    def stop(self, job: Job, child: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)

    def stopped(self, code: int) -> bool:
        return code in (0, -signal.SIGTERM, 128 + signal.SIGTERM)

    def recover(self, job: Job) -> dict[str, Any]:
        return {}

    def disarm(self, job: Job) -> None:
        """Nothing of ours is in such a job."""

    def answers(self, job: Job) -> bool:
        return True


def instances(job: CommandJob, command: list[str]) -> list[Member]:
    """The members that run one command side by side."""
    return [Member(f"worker-{number}", Role.WORKERS, command, {INSTANCE: str(number)}) for number in range(1, job.instances + 1)]


def _checkpoint(job: CommandJob, testbed: Testbed) -> Path:
    return Path(job.cwd) / filled(job.spark_checkpoint, values(job, testbed)).removeprefix("file://")
