"""``kill_python_worker``: SIGKILL the Python workers of an executor that holds a running task.

The model: the kernel's out-of-memory killer, which takes the process that grew, and a native library that crashes. The executor's JVM
lives on, its task fails with "Python worker exited unexpectedly" and is tried again, perhaps at once and by the same executor. What the
dead worker had sent to the sink is sent; what it had in its buffers is not.

Evidence: the workers' processes are gone while the executor's is not, Spark counted a failed task, and a batch was committed afterwards.
Checked against: Spark 4.1 (``PythonWorkerFactory``: the daemon forks another worker for the next task).
"""

from __future__ import annotations

import contextlib
from typing import Any

import psutil

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.faults.spark import executors
from streamproof.jobs.profile import Role
from streamproof.testbed import spark
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import process_record, same_process

COUNT_S = 2.0
EVIDENCE_S = 60.0


class KillPythonWorker(Unconditional):
    name = "kill_python_worker"
    summary = "SIGKILL the Python workers of an executor that holds a running task"
    target = "the Python workers of an executor with a running task"
    parameters_model = Parameters
    of_roles = frozenset({Role.EXECUTORS, Role.PYTHON_WORKERS})

    def batches(self, parameters: Parameters) -> int:
        return 4

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        driver = run.driver()
        return {"role": self.target, "driver": driver, "failed_tasks": executors.failed_tasks(driver), "killed": []}

    def inject(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> None:
        run.wait_for("a task to fail with its Python worker", lambda: self._kill(run, target), EVIDENCE_S)

    def _kill(self, run: RunContext, target: dict[str, Any]) -> bool:
        """Kill the workers that there are; whether a task failed with that. A task that has just ended does not notice."""
        victim, process = executors.at_work(run)
        with contextlib.suppress(psutil.NoSuchProcess):
            for worker in spark.python_workers(process):
                target["killed"].append({"executor": victim, **process_record(worker)})
                worker.kill()
        return run.eventually(lambda: executors.failed_tasks(target["driver"]) > target["failed_tasks"], COUNT_S)

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        killed = target["killed"]
        gone = run.eventually(lambda: not any(same_process(worker) for worker in killed), EVIDENCE_S)
        alive = all(same_process(worker["executor"]) for worker in killed)
        failed = executors.failed_tasks(target["driver"]) - target["failed_tasks"]
        on = run.goes_on(EVIDENCE_S)
        return [
            EvidenceCheck(
                "the Python workers are gone", bool(killed) and gone, f"pids {', '.join(str(worker['pid']) for worker in killed)}"
            ),
            EvidenceCheck(
                "their executors live", alive, f"executors {', '.join(sorted({worker['executor']['executor'] for worker in killed}))}"
            ),
            EvidenceCheck("Spark counted a failed task", failed > 0, f"{failed} more than before"),
            on,
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """Nothing to undo: the executor's Python daemon forks others."""
        return []
