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

from chaos.faults.fault import Claim, Parameters, Scene
from chaos.shown import shown
from delivery.anomaly import Anomaly
from delivery.folder import RunFolder
from pipelines import failpoints, strategies
from pipelines.failpoints import Action, Failpoint
from testbed.embedded import Testbed

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
        return {"role": self.target, "failpoint": failpoint.name, "window": failpoint.window, "start": scene.driver()["start"]}

    def inject(self, scene: Scene, parameters: KillDriverAtStepParameters, target: dict[str, Any]) -> None:
        target["driver"] = scene.folder.read_json(scene.folder.path / "driver.json")
        failpoints.arm(scene.folder, target["failpoint"], Action.KILL_DRIVER)
        scene.wait_for(f"failpoint {target['failpoint']} to fire", lambda: self._fired(scene, target), FIRE_S)

    def _fired(self, scene: Scene, target: dict[str, Any]) -> dict[str, Any] | None:
        return next((event for event in scene.folder.journal.events("failpoint_fired") if event["failpoint"] == target["failpoint"]), None)

    def evidence(self, scene: Scene, parameters: KillDriverAtStepParameters, target: dict[str, Any]) -> list[Claim]:
        fired = self._fired(scene, target)
        pids = [target["driver"]["jvm_pid"], target["driver"]["python_pid"]]
        gone = scene.eventually(lambda: not any(_runs(pid) for pid in pids), RESTART_S)
        again = scene.eventually(lambda: scene.progress.last_start() > target["start"], RESTART_S)
        return [
            Claim(
                f"the protocol reached {target['failpoint']}",
                fired is not None,
                f"in batch {fired['batch']}" if fired else "it did not fire",
            ),
            Claim("the driver's processes are gone", gone, f"JVM {pids[0]}, Python {pids[1]}"),
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


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
