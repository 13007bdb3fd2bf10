"""``kill_driver``: SIGKILL the driver at no step in particular.

The driver is the process that leads the job, with all that it started itself: of a Spark job the JVM and the Python of its driver, of any
other command its process group.

The model: the machine that the driver runs on is taken away. Its trigger is a commit, so it dies early in a micro-batch unless ``delay_s``
says otherwise; ``crash_at_step`` is for those who want to choose the step.

Evidence: the driver's processes are gone, and the job was started again and committed a batch.
Checked against: Spark 4.1 in client mode (executors end once their driver is gone; the next start goes on from the checkpoint).
"""

from __future__ import annotations

import signal
from typing import Any

from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import DRIVER, EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.jobs.profile import Role
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import same_process, signal_recorded

EVIDENCE_S = 120.0


class KillDriverParameters(Parameters):
    delay_s: float = Field(0.0, ge=0.0, le=30.0, description="How long after its trigger, which is a commit, it is killed, in s")


class KillDriver(Unconditional):
    name = "kill_driver"
    summary = "SIGKILL the driver, wherever in a micro-batch it is"
    target = "the driver"
    parameters_model: type[Parameters] = KillDriverParameters
    of_roles = frozenset({Role.DRIVER})
    occupies = frozenset({DRIVER})

    def outside(self, parameters: Any) -> frozenset[embedded.Role]:
        return frozenset()

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        start = run.driver()["start"]
        return {"role": self.target, "start": start, "killed": run.recorded(Role.DRIVER)}

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        run.let_pass(parameters.delay_s)
        signal_recorded(target["killed"], signal.SIGKILL)

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        killed = target["killed"]
        gone = run.eventually(lambda: not any(same_process(victim) for victim in killed), EVIDENCE_S)
        again = run.eventually(lambda: run.progress.last_start() > target["start"], EVIDENCE_S)
        return [
            EvidenceCheck(
                "the driver's processes are gone", bool(killed) and gone, f"pids {', '.join(str(victim['pid']) for victim in killed)}"
            ),
            EvidenceCheck("the job was started again and committed a batch", again, f"start {run.progress.last_start()}"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """Nothing to undo: the supervisor starts the driver again."""
        return []
