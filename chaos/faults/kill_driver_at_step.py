"""``kill_driver_at_step``: SIGKILL the driver just as its commit protocol reaches a named step.

The model: every crash window of a protocol, entered on purpose. A driver that is killed at random dies nearly always in the middle of
a batch; the windows between output and commit are milliseconds wide and are where guarantees break.

The step is a failpoint of the job's strategy. Evidence: the failpoint says (forced to disk, before it kills) that it fired; the
driver's processes are gone; the job was started again and committed a batch.
"""

from __future__ import annotations

from typing import Any

import psutil
from pydantic import Field

from chaos.faults.fault import Claim, FaultError, Parameters, Scene
from chaos.shown import shown
from delivery.anomaly import Anomaly
from delivery.folder import RunFolder
from pipelines import failpoints, strategies
from pipelines.failpoints import Action, Failpoint
from testbed.embedded import Testbed

READY_S = 60.0
FIRE_S = 60.0
RESTART_S = 90.0


class KillDriverAtStepParameters(Parameters):
    step: str | None = Field(None, description="A failpoint of the strategy; its first in the driver when absent")


class KillDriverAtStep:
    name = "kill_driver_at_step"
    summary = "SIGKILL the driver as its commit protocol reaches a step"
    target = "the driver, at a step of its commit protocol"
    parameters_model = KillDriverAtStepParameters

    def batches(self, parameters: KillDriverAtStepParameters) -> int:
        return 2

    def check(self, strategy: str, parameters: dict[str, Any]) -> None:
        _failpoint(strategy, parameters.get("step"))

    def provokes(self, strategy: str, parameters: dict[str, Any]) -> list[Anomaly]:
        return sorted(_failpoint(strategy, parameters.get("step")).provokes)

    def aim(self, scene: Scene, parameters: KillDriverAtStepParameters) -> dict[str, Any]:
        failpoint = _failpoint(scene.job.strategy, parameters.step)
        start = scene.wait_for("a driver that is ready", lambda: _ready_start(scene.folder), READY_S)
        driver = scene.folder.read_json(scene.folder.path / "driver.json")
        return {
            "role": self.target,
            "failpoint": failpoint.name,
            "window": failpoint.window,
            "start": start,
            "driver": driver,
            "processes": [_identify(name, driver[key]) for name, key in (("JVM", "jvm_pid"), ("Python", "python_pid"))],
            # The same step may have been struck before in this run.
            "fired_before": len(self._firings(scene, failpoint.name)),
        }

    def inject(self, scene: Scene, parameters: KillDriverAtStepParameters, target: dict[str, Any]) -> None:
        failpoints.arm(scene.folder, target["failpoint"], Action.KILL_DRIVER)
        scene.wait_for(f"failpoint {target['failpoint']} to fire", lambda: self._fired(scene, target), FIRE_S)

    def _fired(self, scene: Scene, target: dict[str, Any]) -> dict[str, Any] | None:
        return next(iter(self._firings(scene, target["failpoint"])[target["fired_before"] :]), None)

    def _firings(self, scene: Scene, failpoint: str) -> list[dict[str, Any]]:
        return [event for event in scene.folder.journal.events("failpoint_fired") if event["failpoint"] == failpoint]

    def evidence(self, scene: Scene, parameters: KillDriverAtStepParameters, target: dict[str, Any]) -> list[Claim]:
        fired = self._fired(scene, target)
        processes = target["processes"]
        gone = scene.eventually(lambda: not any(_runs(process) for process in processes), RESTART_S)
        again = scene.eventually(lambda: scene.progress.last_start() > target["start"], RESTART_S)
        return [
            Claim(
                f"the protocol reached {target['failpoint']}",
                fired is not None,
                f"in batch {fired['batch']}" if fired else "it did not fire",
            ),
            Claim("the driver's processes are gone", gone, ", ".join(f"{process['name']} {process['pid']}" for process in processes)),
            Claim("the job was started again and committed a batch", again, f"start {scene.progress.last_start()}"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[Claim]:
        was = failpoints.disarm(folder, target["failpoint"])
        left = failpoints.armed(folder)
        return [Claim("no failpoint is armed", not left, f"{target['failpoint']} was {'still armed' if was else 'spent'}")]


def _failpoint(strategy: str, step: str | None) -> Failpoint:
    known = strategies.STRATEGIES[strategy].failpoints
    fitting = [found for found in known if (found.at == "driver" if step is None else found.name == step)]
    if not fitting:
        names = ", ".join(found.name for found in known) or "none"
        raise ValueError(f"kill_driver_at_step: strategy {strategy!r} has no step {shown(step or 'in its driver')}; its steps: {names}")
    return fitting[0]


def _ready_start(folder: RunFolder) -> int | None:
    """The driver start that is ready now; None while it has ended and the next is not ready yet."""
    ready, exited = folder.journal.last("driver_ready"), folder.journal.last("driver_exited")
    if ready is None or (exited is not None and exited["start"] >= ready["start"]):
        return None
    return int(ready["start"])


def _identify(name: str, pid: int) -> dict[str, Any]:
    """A process by its pid and the time of its creation: the pid alone may be another's by and by."""
    try:
        return {"name": name, "pid": pid, "created": psutil.Process(pid).create_time()}
    except psutil.NoSuchProcess:
        raise FaultError(f"the driver's {name} (pid {pid}) ended by itself before it was struck") from None


def _runs(identified: dict[str, Any]) -> bool:
    try:
        process = psutil.Process(identified["pid"])
        return abs(process.create_time() - identified["created"]) <= 1 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
