"""The engine ``spark``: jobs of ours, whose driver is started in client mode on a standalone cluster.

The driver reports its own progress (``progress.jsonl``) and ends by itself once the run's folder holds ``stop``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import psutil

from streamproof.engines.spark import failpoints
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.evidence.journal import DriverReady
from streamproof.jobs.engine import Launch, ProgressSource
from streamproof.jobs.job import Job
from streamproof.jobs.profile import Role
from streamproof.testbed import scratch, spark
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import TestbedError


class SparkEngine:
    name = "spark"
    job_type = SparkJob
    jars = None
    spec_type = None  # an experiment names the strategy of such a job, and describes nothing else

    def launch(self, job: Job, testbed: Testbed) -> Launch:
        command = [sys.executable, "-m", "streamproof.engines.spark.driver", job.folder, str(job.start)]
        environment = spark.driver_environment(testbed.spark_properties)
        return Launch(command, {**environment, **scratch.variables(job.run.path, environment)}, Path(job.folder))

    def processes(self, job: Job, role: Role) -> list[psutil.Process]:
        driver = _announced(job)
        if driver is None:
            return []
        if role is Role.DRIVER:
            return failpoints.driver_processes(driver)
        executors = spark.executor_processes(driver["application"]).values() if "application" in driver else ()
        if role is Role.PYTHON_WORKERS:
            return [worker for executor in executors for worker in spark.python_workers(executor)]
        return [process for executor in executors for process in (executor, *_children(executor))]

    def known(self, job: Job, role: Role, testbed: Testbed) -> frozenset[str]:
        """The faults of Spark ask its master and its driver themselves."""
        return frozenset()

    def leader(self, job: Job, role: Role) -> int | None:
        return None

    def topics(self, job: Job, testbed: Testbed) -> list[str]:
        return []

    def progress(self, job: Job, testbed: Testbed) -> AbstractContextManager[Callable[[], None]]:
        return nullcontext(lambda: None)  # the driver reports it itself

    def progress_source(self, job: Job, testbed: Testbed) -> ProgressSource:
        return ProgressSource("the driver's own reports", "its log says why")

    def stop(self, job: Job, child: subprocess.Popen[bytes]) -> None:
        (job.run.path / "stop").touch()

    def stopped(self, code: int) -> bool:
        return code == 0

    def disarm(self, job: Job) -> None:
        failpoints.disarm_all(job.run)

    def recover(self, job: Job) -> dict[str, Any]:
        assert isinstance(job, SparkJob)
        return STRATEGIES[job.strategy].recover(job)

    def answers(self, job: Job) -> bool:
        ready = job.run.journal.last(DriverReady)
        if ready is None or ready.ui is None or ready.application is None:
            return True
        try:
            return bool(spark.driver_executors(ready.ui, ready.application))
        except TestbedError:
            return False


def _announced(job: Job) -> dict[str, Any] | None:
    """``driver.json``, which each start writes first of all."""
    try:
        driver: dict[str, Any] = json.loads((job.run.path / "driver.json").read_text())
    except FileNotFoundError:
        return None
    return driver


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
