"""``kill_executor``: SIGKILL the JVM of an executor that holds a running task of the query.

The model: a machine's out-of-memory killer, a spot instance that is taken away. Its tasks fail and are retried elsewhere; whatever the
lost attempts had already written outside of Spark stays written.

Evidence: the process is gone, the master no longer counts the executor as running, and the driver counts it as dead.
Checked against: Spark 4.1 standalone (a killed executor is replaced by the worker within seconds; with the default
``spark.task.maxFailures`` the fourth kill of one task fails the query).
"""

from __future__ import annotations

import random
import signal
from functools import partial
from typing import Any

from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import TargetFound
from streamproof.faults.fault import DRIVER, EXECUTORS, EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.faults.spark import executors
from streamproof.jobs.failpoint import Site
from streamproof.jobs.profile import JobProfile, Role
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import same_process

EVIDENCE_S = 30.0


class KillExecutorParameters(Parameters):
    count: int = Field(1, ge=1, le=10, description="How many executors are killed, one after the other")


class KillExecutor(Unconditional):
    name = "kill_executor"
    summary = "SIGKILL an executor that holds a running task of the query"
    target = "an executor with a running task"
    parameters_model = KillExecutorParameters
    of_roles = frozenset({Role.EXECUTORS})
    occupies = frozenset({DRIVER, EXECUTORS})
    sites = frozenset({Site.TASK, Site.EXECUTOR})  # while the driver is held no task runs

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        return {"count": rng.randint(1, 2)}

    def outside(self, parameters: Any) -> frozenset[embedded.Role]:
        return frozenset()

    def aim(self, run: RunContext, parameters: KillExecutorParameters) -> dict[str, Any]:
        return {"role": self.target, "killed": []}

    def inject(self, run: RunContext, parameters: KillExecutorParameters, target: dict[str, Any]) -> None:
        for _ in range(parameters.count):
            victim, process = executors.at_work(run)
            run.folder.journal.append(TargetFound(fault=self.name, details=victim))
            process.send_signal(signal.SIGKILL)
            target["killed"].append(victim)

    def evidence(self, run: RunContext, parameters: KillExecutorParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        checks = []
        for victim in target["killed"]:
            executor = victim["executor"]
            gone = run.eventually(partial(_gone, victim), EVIDENCE_S)
            dropped = run.eventually(partial(_dropped, run.testbed, victim), EVIDENCE_S)
            lost = run.eventually(partial(executors.driver_lost, victim), EVIDENCE_S)
            state = f"{victim['application']}: {executors.master_says(run.testbed, victim)}"
            checks += [
                EvidenceCheck(f"the process of executor {executor} is gone", gone, f"pid {victim['pid']}"),
                EvidenceCheck(f"the master dropped executor {executor}", dropped, state),
                EvidenceCheck(f"the driver lost executor {executor}", lost, f"it held {victim['running_tasks']} running tasks"),
            ]
        return checks

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """Nothing to undo: the worker starts another executor by itself."""
        return []


def _gone(victim: dict[str, Any]) -> bool:
    return same_process(victim) is None


def _dropped(testbed: Testbed, victim: dict[str, Any]) -> bool:
    return executors.master_says(testbed, victim) not in ("RUNNING", "LAUNCHING")
