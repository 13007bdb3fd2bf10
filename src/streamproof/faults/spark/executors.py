"""The executors of the job under test as a fault sees them: which one is at work, and what its driver and its master say of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psutil

from streamproof.faults.fault import EvidenceCheck, FaultError, RunContext
from streamproof.testbed import spark
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import TestbedError, process_record

AIM_S = 60.0
LOOK_S = 0.5
WANTED = "an executor with a running task"


def at_work(run: RunContext) -> tuple[dict[str, Any], psutil.Process]:
    """An executor that holds a running task of the query, drawn from the seed, and its process. Waits for one.

    What is returned first is for the journal: with it the executor is found again. Tasks may be too short to be seen between two looks:
    then an executor is held still until the driver has given it one, and let go at once.
    """
    with suppress(FaultError):
        return run.wait_for(WANTED, lambda: _busy(run), LOOK_S)  # type: ignore[no-any-return]
    held = _held(run)
    try:
        return run.wait_for(WANTED, lambda: _busy(run), AIM_S)  # type: ignore[no-any-return]
    finally:
        with suppress(psutil.NoSuchProcess):
            held.resume()


def _held(run: RunContext) -> psutil.Process:
    """An executor of the job, drawn from the seed, that is stopped from now on."""

    def drawn() -> psutil.Process | None:
        processes = spark.executor_processes(run.driver()["application"])
        return processes[run.rng.choice(sorted(processes, key=int))] if processes else None

    process: psutil.Process = run.wait_for("an executor of the job", drawn, AIM_S)
    process.suspend()
    return process


def _busy(run: RunContext) -> tuple[dict[str, Any], psutil.Process] | None:
    driver = run.driver()
    busy = [listed for listed in listed_executors(driver) if listed["isActive"] and listed["activeTasks"] > 0 and listed["id"] != "driver"]
    if not busy:
        return None
    processes = spark.executor_processes(driver["application"])
    if run.held is not None:  # the executor of the task that is held at the step, as long as there is one
        busy = [listed for listed in busy if listed["id"] in processes and _runs_in(run.held.pid, processes[listed["id"]])] or busy
    chosen = run.rng.choice(sorted(busy, key=lambda listed: int(listed["id"])))
    process = processes.get(chosen["id"])
    if process is None:
        return None
    executor = {"application": driver["application"], "ui": driver["ui"], "running_tasks": chosen["activeTasks"]}
    return {"executor": chosen["id"], **process_record(process), **executor}, process


def _runs_in(worker: int, executor: psutil.Process) -> bool:
    """Whether the Python worker with that pid is the executor's."""
    try:
        return any(parent.pid == executor.pid for parent in psutil.Process(worker).parents())
    except psutil.NoSuchProcess:
        return False


def listed_executors(driver: dict[str, Any]) -> list[dict[str, Any]]:
    """All executors by the driver's own account; none while it does not answer, as between two starts."""
    try:
        return spark.driver_executors(driver["ui"], driver["application"])
    except TestbedError:
        return []


def driver_lost(executor: dict[str, Any]) -> bool:
    return any(listed["id"] == executor["executor"] and not listed["isActive"] for listed in listed_executors(executor))


def master_says(testbed: Testbed, executor: dict[str, Any]) -> str:
    """The executor's state in the master's eyes."""
    return spark.application_executors(testbed.spark_ui, executor["application"]).get(executor["executor"], "not listed")


def failed_tasks(driver: dict[str, Any]) -> int:
    """Failed tasks so far, by the driver's own count; 0 when it does not answer."""
    return sum(int(listed["failedTasks"]) for listed in listed_executors(driver))


def ran_into(run: RunContext, start: int, failed: int, timeout_s: float) -> EvidenceCheck:
    """That the job meets what was broken, within ``timeout_s``: tasks fail beyond the ``failed`` of before, or the driver is started again
    after ``start``."""

    def met() -> bool:
        driver = run.driver()
        return bool(driver["start"] > start or failed_tasks(driver) > failed)

    noticed, driver = run.eventually(met, timeout_s), run.driver()
    return EvidenceCheck("the job ran into it", noticed, f"start {driver['start']}, {failed_tasks(driver)} failed tasks")
