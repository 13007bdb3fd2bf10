"""``exhaust_memory``: an executor that holds a running task, or its Python workers, can have no more memory.

The model: a machine or a container that is full. The kernel refuses what a process asks for beyond what it has: a JVM cannot start a
thread or map a buffer and ends itself (Spark's executors do so on ``OutOfMemoryError``); Python raises ``MemoryError``, or a native library
aborts. Unlike SIGKILL that happens in the midst of the process's own work, at the next thing that it needs.

The limit on the process's address space (``RLIMIT_AS``) is set to what it occupies already. It is the process's own: its successor does not
have it.

Evidence: the limit reads back, and because of it the process ended or a task failed; and the job committed a batch afterwards.
Checked against: Linux (prlimit on a process of the same user), Spark 4.1 (``SparkUncaughtExceptionHandler`` ends an executor with exit code
52 on ``OutOfMemoryError``).
"""

from __future__ import annotations

import contextlib
import sys
from enum import StrEnum
from typing import Any

import psutil
from pydantic import Field

from chaos.faults import executors
from chaos.faults.fault import Claim, FaultError, Parameters, Scene, Unconditional
from delivery.folder import RunFolder
from testbed import spark
from testbed.embedded import Testbed
from testbed.process import same_process, told

STRIKE_S = 60.0
BITE_S = 60.0
EVIDENCE_S = 60.0


class Process(StrEnum):
    EXECUTOR = "executor"
    PYTHON_WORKER = "python_worker"


class ExhaustMemoryParameters(Parameters):
    process: Process = Field(Process.EXECUTOR, description="Whose memory is at its end: the executor's JVM, or its Python workers")


class ExhaustMemory(Unconditional):
    name = "exhaust_memory"
    summary = "Let an executor with a running task, or its Python workers, have no more memory"
    target = "an executor with a running task"
    parameters_model = ExhaustMemoryParameters

    def batches(self, parameters: ExhaustMemoryParameters) -> int:
        return 4

    def check(self, strategy: str, parameters: dict[str, Any]) -> None:
        if not executors.run_python(strategy):
            raise ValueError(f"{self.name}: a job with {strategy!r} runs no Python in its tasks: its JVM may do with what it has for long")

    def prevented(self) -> str | None:
        return None if sys.platform == "linux" else "only Linux lets one process limit another: use kill_executor"

    def aim(self, scene: Scene, parameters: ExhaustMemoryParameters) -> dict[str, Any]:
        driver = scene.driver()
        victims = scene.wait_for("a process to limit", lambda: _victims(scene, parameters.process), STRIKE_S)
        return {"role": self.target, "driver": driver, "failed_tasks": executors.failed_tasks(driver), "limited": victims}

    def inject(self, scene: Scene, parameters: ExhaustMemoryParameters, target: dict[str, Any]) -> None:
        target["read_back"] = [limit for victim in target["limited"] if (limit := _limit(victim)) is not None]
        if not target["read_back"]:
            raise FaultError(f"{self.name}: the processes ended by themselves before they were limited")

    def evidence(self, scene: Scene, parameters: ExhaustMemoryParameters, target: dict[str, Any]) -> list[Claim]:
        def failed() -> int:
            return executors.failed_tasks(target["driver"]) - int(target["failed_tasks"])

        def gone() -> bool:
            return any(same_process(victim) is None for victim in target["limited"])

        bit = scene.eventually((lambda: gone() and failed() > 0) if parameters.process is Process.PYTHON_WORKER else gone, BITE_S)
        pids = ", ".join(str(victim["pid"]) for victim in target["limited"] if same_process(victim) is None)
        before = scene.progress.batches()
        on = scene.eventually(lambda: scene.progress.batches() > before, EVIDENCE_S)
        limits = ", ".join(f"{limit >> 20} MiB" for limit in target["read_back"])
        what = "the executor ended" if parameters.process is Process.EXECUTOR else "a Python worker ended and a task failed"
        return [
            Claim("the limit reads back", True, limits),
            Claim(f"{what} for want of memory", bit, f"gone: pid {pids or 'none'}; {failed()} tasks failed"),
            Claim("the job committed a batch afterwards", on, f"{scene.progress.batches()} batches"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[Claim]:
        """A process that lives on gets its former limit back."""
        return [Claim(f"process {victim['pid']} is limited no more", _unlimited(victim), "") for victim in target["limited"]]


def _victims(scene: Scene, process: Process) -> list[dict[str, Any]]:
    executor, found = executors.at_work(scene)
    victims = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in [found] if process is Process.EXECUTOR else spark.python_workers(found):
            soft, hard = one.rlimit(psutil.RLIMIT_AS)
            victims.append({**told(one), "executor": executor["executor"], "soft": soft, "hard": hard})
    return victims


def _limit(victim: dict[str, Any]) -> int | None:
    """Let the process have what it has; the limit as it reads back, None when the process is gone."""
    process = same_process(victim)
    if process is None:
        return None
    try:
        process.rlimit(psutil.RLIMIT_AS, (process.memory_info().vms, victim["hard"]))
        return int(process.rlimit(psutil.RLIMIT_AS)[0])
    except psutil.NoSuchProcess:
        return None


def _unlimited(victim: dict[str, Any]) -> bool:
    process = same_process(victim)
    if process is None:
        return True
    try:
        process.rlimit(psutil.RLIMIT_AS, (victim["soft"], victim["hard"]))
        return bool(process.rlimit(psutil.RLIMIT_AS)[0] == victim["soft"])
    except psutil.NoSuchProcess:
        return True
