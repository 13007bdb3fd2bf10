"""Outages of Spark's own parts: the master, a worker node, an executor. Unlike a server of the job's data, the job is to go on without it.

Each fault, a file of its own, names its target and who notices; the moments are the same for all. What is woken or started again is
journaled before anything is broken, as for every outage.
"""

from __future__ import annotations

import random
from typing import Any

from pydantic import Field

from streamproof.faults.fault import DRIVER, EXECUTORS, EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.outage import ServerOutage
from streamproof.faults.spark import executors
from streamproof.jobs.profile import JobProfile, Role
from streamproof.testbed import embedded, hosts, spark
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import TestbedError, process_record, remembered, same_process

NOTICE_S = 90.0
BATCH_S = 180.0


class SparkOutageParameters(Parameters):
    batches: int = Field(2, ge=1, le=100, description="How many micro-batches are committed without it before it is healed")


class SparkOutage(ServerOutage):
    what = "Spark's cluster manager"
    of_roles = frozenset({Role.EXECUTORS})
    parameters_model = SparkOutageParameters

    @property
    def occupies(self) -> frozenset[str]:
        return frozenset({DRIVER, EXECUTORS, self.what})

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        return {"batches": rng.randint(2, 3)}

    def outside(self, parameters: Any) -> frozenset[embedded.Way]:
        return frozenset({embedded.SPARK_SERVERS})

    def batches(self, parameters: SparkOutageParameters) -> int:
        return parameters.batches + 2

    def inject(self, run: RunContext, parameters: SparkOutageParameters, target: dict[str, Any]) -> None:
        target["batches"] = run.progress.batches()
        self.take_down(run.testbed, target)

    def noticed(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        """That those who depended on it know."""
        raise NotImplementedError

    def returned(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        """What has to be seen once it is back."""
        raise NotImplementedError

    def answers(self, testbed: Testbed, target: dict[str, Any]) -> list[bool]:
        """Whether the master and every worker do, and belong together."""
        return [spark.registered(testbed.spark)]

    def evidence(self, run: RunContext, parameters: SparkOutageParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        checks = [*self.took_effect(run, target), *self.noticed(run, target)]
        begin = target["batches"] + 1  # the batch in flight may have been done with it
        without = run.eventually(lambda: run.progress.batches() >= begin + parameters.batches, BATCH_S)
        checks.append(EvidenceCheck("the job went on without it", without, f"{run.progress.batches() - begin} micro-batches"))
        return [*checks, *self.heal(run.testbed, run.folder, target), *self.returned(run, target)]


class WorkerOutage(SparkOutage):
    """Strikes the worker node on which an executor holds a running task: the worker's JVM and all that it has started."""

    def aim(self, run: RunContext, parameters: SparkOutageParameters) -> dict[str, Any]:
        executor, process = executors.at_work(run)
        for role in spark.WORKERS:
            handle = remembered(f"spark-{role}", embedded.folder())
            worker = handle.process() if handle else None
            if worker is not None and worker.pid == process.ppid():
                servers = [{"server": f"spark-{role}", "host": hosts.of_worker(role), **process_record(worker)}]
                return {"role": self.target, "servers": servers, "worker": spark.worker_id(run.testbed.spark, role), "executor": executor}
        raise FaultError(f"executor {executor['executor']} runs on no worker of this testbed")

    def noticed(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        executor, ports = target["executor"], run.testbed.spark

        def state() -> str:
            return spark.worker_states(ports).get(target["worker"], "not listed")

        dead = run.eventually(lambda: state() != "ALIVE", NOTICE_S)
        lost = run.eventually(lambda: executors.driver_lost(executor), NOTICE_S)
        return [
            EvidenceCheck(f"the master counts {target['servers'][0]['server']} as dead", dead, f"{target['worker']}: {state()}"),
            EvidenceCheck(
                f"the driver lost its executor {executor['executor']}", lost, f"it held {executor['running_tasks']} running tasks"
            ),
        ]

    def returned(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        executor = target["executor"]
        gone = run.eventually(lambda: same_process(executor) is None, NOTICE_S)
        return [EvidenceCheck(f"executor {executor['executor']} is gone for good", gone, f"pid {executor['pid']}")]


def knows_application(testbed: Testbed, application: str) -> bool:
    """Whether the master that answers now counts the application as running."""
    try:
        applications = spark.master_state(testbed.spark_ui)["activeapps"]
    except TestbedError:
        return False
    return any(listed["id"] == application and listed["state"] == "RUNNING" for listed in applications)
