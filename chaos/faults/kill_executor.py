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

import psutil
from pydantic import Field

from chaos.faults.fault import DRIVER, EXECUTORS, Claim, Parameters, Scene, Unconditional
from delivery.folder import RunFolder
from pipelines.failpoints import Site
from testbed import spark
from testbed.embedded import Role, Testbed
from testbed.process import TestbedError

AIM_S = 60.0
EVIDENCE_S = 30.0


class KillExecutorParameters(Parameters):
    count: int = Field(1, ge=1, le=10, description="How many executors are killed, one after the other")


class KillExecutor(Unconditional):
    name = "kill_executor"
    summary = "SIGKILL an executor that holds a running task of the query"
    target = "an executor with a running task"
    parameters_model = KillExecutorParameters
    occupies = frozenset({DRIVER, EXECUTORS})
    sites = frozenset({Site.TASK})  # while the driver stands still no task runs

    def draw(self, rng: random.Random, strategy: str) -> dict[str, Any] | None:
        return {"count": rng.randint(1, 2)}

    def outside(self, parameters: Any) -> frozenset[Role]:
        return frozenset()

    def aim(self, scene: Scene, parameters: KillExecutorParameters) -> dict[str, Any]:
        return {"role": self.target, "killed": []}

    def inject(self, scene: Scene, parameters: KillExecutorParameters, target: dict[str, Any]) -> None:
        for _ in range(parameters.count):
            victim, process = scene.wait_for("an executor with a running task", lambda: self._busy(scene), AIM_S)
            scene.folder.journal.append("target_found", fault=self.name, **victim)
            process.send_signal(signal.SIGKILL)
            target["killed"].append(victim)

    def _busy(self, scene: Scene) -> tuple[dict[str, Any], psutil.Process] | None:
        driver = scene.driver()
        try:
            executors = spark.driver_executors(driver["ui"], driver["application"])
        except TestbedError:
            return None  # the driver is between two starts
        busy = [found for found in executors if found["isActive"] and found["activeTasks"] > 0 and found["id"] != "driver"]
        if not busy:
            return None
        processes = spark.executor_processes(driver["application"])
        if scene.stands is not None:  # the task that stands still at a step is the one that is meant, as long as there is one
            busy = [found for found in busy if found["id"] in processes and _runs_in(scene.stands["pid"], processes[found["id"]])] or busy
        chosen = scene.rng.choice(sorted(busy, key=lambda found: int(found["id"])))
        process = processes.get(chosen["id"])
        if process is None:
            return None
        victim = {
            "executor": chosen["id"],
            "pid": process.pid,
            "created": process.create_time(),
            "application": driver["application"],
            "running_tasks": chosen["activeTasks"],
            "ui": driver["ui"],
        }
        return victim, process

    def evidence(self, scene: Scene, parameters: KillExecutorParameters, target: dict[str, Any]) -> list[Claim]:
        claims = []
        for victim in target["killed"]:
            executor = victim["executor"]
            gone = scene.eventually(partial(_gone, victim), EVIDENCE_S)
            dropped = scene.eventually(partial(_dropped, scene.testbed, victim), EVIDENCE_S)
            lost = scene.eventually(partial(_driver_lost, victim), EVIDENCE_S)
            state = f"{victim['application']}: {_master_says(scene.testbed, victim)}"
            claims += [
                Claim(f"the process of executor {executor} is gone", gone, f"pid {victim['pid']}"),
                Claim(f"the master dropped executor {executor}", dropped, state),
                Claim(f"the driver lost executor {executor}", lost, f"it held {victim['running_tasks']} running tasks"),
            ]
        return claims

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[Claim]:
        """Nothing to undo: the worker starts another executor by itself."""
        return []


def _runs_in(worker: int, executor: psutil.Process) -> bool:
    """Whether the Python worker with that pid is the executor's."""
    try:
        return any(parent.pid == executor.pid for parent in psutil.Process(worker).parents())
    except psutil.NoSuchProcess:
        return False


def _gone(victim: dict[str, Any]) -> bool:
    try:
        process = psutil.Process(victim["pid"])
        return abs(process.create_time() - victim["created"]) > 1 or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _dropped(testbed: Testbed, victim: dict[str, Any]) -> bool:
    return _master_says(testbed, victim) not in ("RUNNING", "LAUNCHING")


def _master_says(testbed: Testbed, victim: dict[str, Any]) -> str:
    return spark.application_executors(testbed.spark.master_ui, victim["application"]).get(victim["executor"], "not listed")


def _driver_lost(victim: dict[str, Any]) -> bool:
    try:
        executors = spark.driver_executors(victim["ui"], victim["application"])
    except TestbedError:
        return False
    return any(found["id"] == victim["executor"] and not found["isActive"] for found in executors)
