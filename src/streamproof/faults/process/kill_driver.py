"""``kill_driver``: SIGKILL the driver at no step in particular.

The model: the machine that the driver runs on is taken away. Where in a micro-batch it dies is left to chance; ``crash_at_step`` is for
those who want to choose.

Evidence: the driver's JVM and Python are gone, and the job was started again and committed a batch.
Checked against: Spark 4.1 in client mode (executors end once their driver is gone; the next start goes on from the checkpoint).
"""

from __future__ import annotations

from typing import Any

from streamproof.engines.spark import failpoints
from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import DRIVER, Claim, Parameters, Scene, Unconditional
from streamproof.testbed.embedded import Role, Testbed

EVIDENCE_S = 120.0


class KillDriver(Unconditional):
    name = "kill_driver"
    summary = "SIGKILL the driver, wherever in a micro-batch it is"
    target = "the driver"
    parameters_model = Parameters
    occupies = frozenset({DRIVER})

    def outside(self, parameters: Any) -> frozenset[Role]:
        return frozenset()

    def aim(self, scene: Scene, parameters: Parameters) -> dict[str, Any]:
        start = scene.driver()["start"]
        return {"role": self.target, "start": start, "driver": scene.folder.read_json(scene.folder.path / "driver.json")}

    def inject(self, scene: Scene, parameters: Parameters, target: dict[str, Any]) -> None:
        failpoints.kill_driver(scene.folder)

    def evidence(self, scene: Scene, parameters: Parameters, target: dict[str, Any]) -> list[Claim]:
        driver = target["driver"]
        gone = scene.eventually(lambda: not failpoints.driver_processes(driver), EVIDENCE_S)
        again = scene.eventually(lambda: scene.progress.last_start() > target["start"], EVIDENCE_S)
        return [
            Claim("the driver's processes are gone", gone, f"JVM {driver['jvm_pid']}, Python {driver['python_pid']}"),
            Claim("the job was started again and committed a batch", again, f"start {scene.progress.last_start()}"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[Claim]:
        """Nothing to undo: the supervisor starts the driver again."""
        return []
