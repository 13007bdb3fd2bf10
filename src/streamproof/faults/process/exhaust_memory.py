"""``exhaust_memory``: an executor that holds a running task can have no more memory.

The model: a machine or a container that is full. The kernel refuses what a process asks for beyond what it has: a JVM cannot start a
thread or map a buffer and ends itself (Spark's executors do so on ``OutOfMemoryError``). Unlike SIGKILL that happens in the midst of the
process's own work, at the next thing that it needs. (A Python worker does with what it has for long: it is not struck.)

The limit on the process's address space (``RLIMIT_AS``) is set to what it occupies already. It is the process's own: its successor does not
have it.

Evidence: the limit reads back, the process ended, the driver lost the executor, and the job committed a batch afterwards.
Checked against: Linux (prlimit on a process of the same user), Spark 4.1 (``SparkUncaughtExceptionHandler`` ends an executor with exit code
52 on ``OutOfMemoryError``).
"""

from __future__ import annotations

import sys
from typing import Any

import psutil

from streamproof.engines.spark.failpoints import Site
from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import DRIVER, EXECUTORS, Claim, FaultError, Parameters, Scene, Unconditional
from streamproof.faults.spark import executors
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import same_process

BITE_S = 60.0
EVIDENCE_S = 60.0


class ExhaustMemory(Unconditional):
    name = "exhaust_memory"
    summary = "Let an executor with a running task have no more memory"
    target = "an executor with a running task"
    parameters_model = Parameters
    occupies = frozenset({DRIVER, EXECUTORS})
    sites = frozenset({Site.TASK})

    def batches(self, parameters: Parameters) -> int:
        return 4

    def check(self, strategy: str, parameters: dict[str, Any]) -> None:
        if not executors.run_python(strategy):
            raise ValueError(f"{self.name}: a job with {strategy!r} runs no Python in its tasks: its JVM may do with what it has for long")

    def prevented(self) -> str | None:
        return None if sys.platform == "linux" else "only Linux lets one process limit another: use kill_executor"

    def aim(self, scene: Scene, parameters: Parameters) -> dict[str, Any]:
        executor, process = executors.at_work(scene)
        soft, hard = process.rlimit(psutil.RLIMIT_AS)
        return {"role": self.target, **executor, "soft": soft, "hard": hard}

    def inject(self, scene: Scene, parameters: Parameters, target: dict[str, Any]) -> None:
        process = same_process(target)
        if process is None:
            raise FaultError(f"executor {target['executor']} ended by itself before it was struck")
        target["limit"] = process.memory_info().vms
        process.rlimit(psutil.RLIMIT_AS, (target["limit"], target["hard"]))
        target["read_back"] = process.rlimit(psutil.RLIMIT_AS)[0]

    def evidence(self, scene: Scene, parameters: Parameters, target: dict[str, Any]) -> list[Claim]:
        executor = target["executor"]
        ended = scene.eventually(lambda: same_process(target) is None, BITE_S)
        lost = scene.eventually(lambda: executors.driver_lost(target), EVIDENCE_S)
        on = scene.goes_on(EVIDENCE_S)
        return [
            Claim("the limit reads back", target["read_back"] == target["limit"], f"{target['read_back'] >> 20} MiB"),
            Claim(f"executor {executor} ended for want of memory", ended, f"pid {target['pid']}"),
            Claim(f"the driver lost executor {executor}", lost, f"it held {target['running_tasks']} running tasks"),
            on,
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[Claim]:
        """A process that lives on gets its former limit back."""
        process = same_process(target)
        if process is None:
            return []
        process.rlimit(psutil.RLIMIT_AS, (target["soft"], target["hard"]))
        now = process.rlimit(psutil.RLIMIT_AS)[0]
        return [Claim(f"executor {target['executor']} is limited no more", now == target["soft"], f"{now}")]
