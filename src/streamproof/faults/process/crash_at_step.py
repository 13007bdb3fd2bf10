"""``crash_at_step``: crash the job just as its commit protocol reaches a named step.

The model: every crash window of a protocol, entered on purpose. A driver that is killed at random dies nearly always in the middle of
a batch; the windows between output and commit are milliseconds wide and are where guarantees break.

The step is a failpoint of the job's strategy; the action is a SIGKILL of the driver, a SIGKILL of the task's Python worker (or of its
executor, where the task runs in that), or an exception. With ``then``, a second step is armed that fires only once the first has: a crash
while recovering from a crash.

Evidence: each failpoint says (forced to disk, before it acts) that it fired; the process that was to die is gone; Spark counted the failed
task, or the job was started again; and a batch was committed after it all.
"""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import Any

from pydantic import Field

from streamproof.engines.spark import failpoints
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import FailpointFired
from streamproof.faults.fault import DRIVER, EXECUTORS, FAILPOINTS, EvidenceCheck, Ordinary, Parameters, RunContext
from streamproof.faults.process.hold import wake, window
from streamproof.faults.spark import executors
from streamproof.jobs.failpoint import Action, Failpoint, Site
from streamproof.jobs.profile import JobProfile
from streamproof.shown import shown
from streamproof.testbed.embedded import Role, Testbed
from streamproof.testbed.process import same_process
from streamproof.verdict.anomaly import Anomaly

FIRE_S = 120.0
RESTART_S = 120.0


class CrashAtStepParameters(Parameters):
    step: str | None = Field(None, description="A step of the strategy; its first that the driver passes when absent")
    action: Action | None = Field(None, description="kill_driver, kill_worker, kill_executor or raise; kill_driver when absent")
    then: str | None = Field(None, description="A second step, at which the driver is killed once the first crash has happened")


class CrashAtStep(Ordinary):
    name = "crash_at_step"
    summary = "SIGKILL the driver, a Python worker or an executor, or raise, as the commit protocol reaches a step"
    target = "the driver or a task, at a step of the commit protocol"
    parameters_model = CrashAtStepParameters
    occupies = frozenset({DRIVER, EXECUTORS, FAILPOINTS})
    sites = frozenset[Site]()  # it waits for a step by itself

    def outside(self, parameters: Any) -> frozenset[Role]:
        return frozenset()

    def batches(self, parameters: CrashAtStepParameters) -> int:
        return 2

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        crash = CrashAtStepParameters.model_validate(parameters)
        failpoint = find(profile, crash.step)
        action = crash.action or Action.KILL_DRIVER
        if action not in failpoint.actions:
            names = ", ".join(failpoint.actions)
            raise ValueError(f"crash_at_step: {action} is not possible at {failpoint.name} (a {failpoint.at} step); possible: {names}")
        if failpoint.at == Site.RECOVERY:
            raise ValueError(
                f"crash_at_step: {failpoint.name} is a step of recovery: name the crash to recover from in `step`, this in `then`"
            )
        if crash.then is not None and find(profile, crash.then).at == Site.WATCHED:
            raise ValueError(f"crash_at_step: {crash.then} is a watched step, it cannot be the second")
        if crash.then == failpoint.name:
            raise ValueError(f"crash_at_step: `then` names the first step again, {crash.then}: name another")

    def provokes(self, profile: JobProfile, parameters: dict[str, Any]) -> list[Anomaly]:
        crash = CrashAtStepParameters.model_validate(parameters)
        return sorted(find(profile, crash.step).provokes)

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Of the crashes that need not show anything: a step, an action, and now and then a second crash in the recovery."""
        harmless = [point for point in profile.failpoints if point.at != Site.RECOVERY and not point.provokes]
        if not harmless:
            return None
        point = rng.choice(harmless)
        thens = [then for first, then in profile.second_crashes if first == point.name and not find(profile, then).provokes]
        if thens and rng.random() < 1 / 3:
            return {"step": point.name, "action": Action.KILL_DRIVER, "then": rng.choice(thens)}
        return {"step": point.name, "action": rng.choice(point.actions)}

    def aim(self, run: RunContext, parameters: CrashAtStepParameters) -> dict[str, Any]:
        failpoint = find(run.profile, parameters.step)
        driver = run.driver()
        return {
            "role": self.target,
            "failpoint": failpoint.name,
            "at": failpoint.at,
            "action": parameters.action or Action.KILL_DRIVER,
            "then": parameters.then,
            "window": failpoint.window,
            "start": driver["start"],
            "fired_before": len(run.folder.journal.all(FailpointFired)),
            "failed_tasks": executors.failed_tasks(driver),
            "driver": run.folder.read_json(run.folder.path / "driver.json"),
        }

    def inject(self, run: RunContext, parameters: CrashAtStepParameters, target: dict[str, Any]) -> None:
        if parameters.then is not None:
            failpoints.arm(run.folder, parameters.then, Action.KILL_DRIVER, after=target["failpoint"])
        if target["at"] == Site.WATCHED:
            self._watch(run, target)
        else:
            failpoints.arm(run.folder, target["failpoint"], target["action"])
        crashes = 1 if parameters.then is None else 2
        what = target["failpoint"] if parameters.then is None else f"{target['failpoint']}, then {parameters.then},"
        run.wait_for(f"{what} to be reached", lambda: len(_fired(run, target)) >= crashes, FIRE_S)

    def _watch(self, run: RunContext, target: dict[str, Any]) -> None:
        """Kill the driver inside a window that is seen to be open, while the driver is stopped."""
        with window(run, target["failpoint"]) as hold:
            held = hold.event
            fired = FailpointFired(failpoint=held.failpoint, batch=held.batch, action=Action.KILL_DRIVER, pid=held.pid)
            run.folder.journal.append(fired)
            (run.folder.failpoints / f"{target['failpoint']}.fired").touch()
            failpoints.kill_driver(run.folder)

    def evidence(self, run: RunContext, parameters: CrashAtStepParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        fired = _fired(run, target)
        checks = [
            EvidenceCheck(f"the protocol reached {event.failpoint}", True, f"in batch {event.batch}: {event.action}") for event in fired
        ]
        restarts = sum(event.action == Action.KILL_DRIVER or event.failpoint in _of_driver(run) for event in fired)
        if target["action"] in (Action.KILL_WORKER, Action.KILL_EXECUTOR):
            gone = run.eventually(lambda: same_process(asdict(fired[0])) is None, RESTART_S)
            what = "the Python worker" if target["action"] == Action.KILL_WORKER else "the executor"
            checks.append(EvidenceCheck(f"{what} is gone", gone, f"pid {fired[0].pid}"))
        if target["action"] == Action.KILL_DRIVER:
            driver = target["driver"]
            gone = run.eventually(lambda: not failpoints.driver_processes(driver), RESTART_S)
            checks.append(EvidenceCheck("the driver's processes are gone", gone, f"JVM {driver['jvm_pid']}, Python {driver['python_pid']}"))
        if restarts:
            again = run.eventually(lambda: run.progress.last_start() >= target["start"] + restarts, RESTART_S)
            checks.append(EvidenceCheck("the job was started again and committed a batch", again, f"start {run.progress.last_start()}"))
        else:
            counted = run.eventually(lambda: executors.failed_tasks(run.driver()) > target["failed_tasks"], RESTART_S)
            checks.append(EvidenceCheck("Spark counted a failed task", counted, f"{executors.failed_tasks(run.driver())} so far"))
            checks.append(run.goes_on(RESTART_S))
        return checks

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        names = [name for name in (target["failpoint"], target.get("then")) if name]
        armed = [name for name in names if failpoints.disarm(folder, name)]
        if target["at"] == Site.WATCHED:
            wake(target["driver"])
        left = set(failpoints.armed(folder)).intersection(names)
        return [EvidenceCheck("no failpoint is armed", not left, f"still armed was: {', '.join(armed) or 'none'}")]


def find(profile: JobProfile, step: str | None) -> Failpoint:
    """The job's failpoint ``step``; without a name the first that a crash of the driver can start from. Raises ValueError."""
    failpoints = profile.failpoints
    fitting = [point for point in failpoints if (point.at in (Site.DRIVER, Site.WATCHED) if step is None else point.name == step)]
    if not fitting:
        names = ", ".join(point.name for point in failpoints) or "none"
        raise ValueError(f"crash_at_step: a job with {profile.name!r} has no step {shown(step or 'in its driver')}; its steps: {names}")
    return fitting[0]


def _of_driver(run: RunContext) -> set[str]:
    """The steps at which an exception ends the driver."""
    return {point.name for point in run.profile.failpoints if point.at == Site.DRIVER}


def _fired(run: RunContext, target: dict[str, Any]) -> list[FailpointFired]:
    """What fired since this injection was aimed."""
    return run.folder.journal.all(FailpointFired)[target["fired_before"] :]
