"""``exhaust_memory``: an executor that holds a running task can have no more memory.

The model: a machine or a container that is full. The kernel refuses what a process asks for beyond what it has: a JVM cannot start a
thread or map a buffer and ends itself (Spark's executors do so on ``OutOfMemoryError``). Unlike SIGKILL that happens in the midst of the
process's own work, at the next thing that it needs. (A Python worker does with what it has for long: it is spared.)

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

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import DRIVER, EXECUTORS, EvidenceCheck, FaultError, Parameters, RunContext, Unconditional
from streamproof.faults.spark import executors
from streamproof.jobs.failpoint import Site
from streamproof.jobs.profile import Role
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import same_process

BITE_S = 60.0
EVIDENCE_S = 60.0


class ExhaustMemory(Unconditional):
    name = "exhaust_memory"
    summary = "Let an executor with a running task have no more memory"
    target = "an executor with a running task"
    parameters_model = Parameters
    of_roles = frozenset({Role.EXECUTORS, Role.PYTHON_WORKERS})
    occupies = frozenset({DRIVER, EXECUTORS})
    sites = frozenset({Site.TASK})

    def batches(self, parameters: Parameters) -> int:
        return 4

    def prevented(self) -> str | None:
        return None if sys.platform == "linux" else "only Linux lets one process limit another: use kill_executor"

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        executor, process = executors.at_work(run)
        soft, hard = process.rlimit(psutil.RLIMIT_AS)
        return {"role": self.target, **executor, "soft": soft, "hard": hard}

    def inject(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> None:
        process = same_process(target)
        if process is None:
            raise FaultError(f"executor {target['executor']} ended by itself before the fault was injected")
        target["limit"] = process.memory_info().vms
        process.rlimit(psutil.RLIMIT_AS, (target["limit"], target["hard"]))
        target["read_back"] = process.rlimit(psutil.RLIMIT_AS)[0]

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        executor = target["executor"]
        ended = run.eventually(lambda: same_process(target) is None, BITE_S)
        lost = run.eventually(lambda: executors.driver_lost(target), EVIDENCE_S)
        on = run.goes_on(EVIDENCE_S)
        return [
            EvidenceCheck("the limit reads back", target["read_back"] == target["limit"], f"{target['read_back'] >> 20} MiB"),
            EvidenceCheck(f"executor {executor} ended for want of memory", ended, f"pid {target['pid']}"),
            EvidenceCheck(f"the driver lost executor {executor}", lost, f"it held {target['running_tasks']} running tasks"),
            on,
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """A process that lives on gets its former limit back."""
        process = same_process(target)
        if process is None:
            return []
        process.rlimit(psutil.RLIMIT_AS, (target["soft"], target["hard"]))
        now = process.rlimit(psutil.RLIMIT_AS)[0]
        return [EvidenceCheck(f"executor {target['executor']} is limited no more", now == target["soft"], f"{now}")]
