"""The engine ``command``: any command line, supervised and started again.

A start is told where it works by its environment:

    STREAMPROOF_BOOTSTRAP_SERVERS        Kafka, behind the proxies that faults break
    STREAMPROOF_INPUT_TOPIC              what it reads
    STREAMPROOF_OUTPUT_TOPIC             where it delivers
    STREAMPROOF_GROUP                    the consumer group whose committed offsets are its progress
    STREAMPROOF_JOB                      its own name in this run: transactional ids should begin with it and a dot
    STREAMPROOF_STATE_FOLDER             a folder of its own that outlives its starts
    STREAMPROOF_START                    the number of this start, from 1
    STREAMPROOF_BATCH_RECORDS            how many records it should commit at once at most
    STREAMPROOF_TRANSACTION_TIMEOUT_MS   how long a transaction may stay open

It leads a process group of its own, which is what a fault kills. Once every record was committed it gets SIGTERM, and should end with exit
code 0 or by that signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil

from streamproof.engines.command.job import CommandJob, CommandSpec
from streamproof.engines.command.progress import GroupProgress
from streamproof.jobs.engine import RUN_MARK, Launch
from streamproof.jobs.job import Job
from streamproof.jobs.profile import Role
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import marked


class CommandEngine:
    name = "command"
    job_type = CommandJob
    spec_type = CommandSpec

    def launch(self, job: Job, testbed: Testbed) -> Launch:
        assert isinstance(job, CommandJob)
        state = job.checkpoint("state")
        state.mkdir(parents=True, exist_ok=True)
        addresses = {
            "BOOTSTRAP_SERVERS": job.bootstrap,
            "INPUT_TOPIC": job.input_topic,
            "OUTPUT_TOPIC": job.output_topic,
            "GROUP": job.name,
            "JOB": job.name,
            "STATE_FOLDER": str(state),
            "START": str(job.start),
            "BATCH_RECORDS": str(job.batch_records),
            "TRANSACTION_TIMEOUT_MS": str(job.transaction_timeout_ms),
        }
        own = {name: value for name, value in os.environ.items() if not name.startswith("STREAMPROOF_")}
        environment = {**own, **job.env, **{f"STREAMPROOF_{name}": value for name, value in addresses.items()}}
        return Launch([part.replace("{python}", sys.executable) for part in job.command], environment, Path(job.cwd))

    def processes(self, job: Job, role: Role) -> list[psutil.Process]:
        return marked(**{RUN_MARK: job.run.name}) if role is Role.DRIVER else []

    def progress(self, job: Job, testbed: Testbed) -> AbstractContextManager[Callable[[], None]]:
        return GroupProgress(job, testbed.direct_kafka)

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
