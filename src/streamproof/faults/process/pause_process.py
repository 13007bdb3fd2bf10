"""``pause_process``: SIGSTOP one process of a job that runs as several, for longer than the others wait for it, then wake it.

The model: a long garbage collection, a virtual machine that is moved. Whoever counts its heartbeats gives it up, and another takes over
its work; then it goes on where it stood, and knows nothing of that. Only fencing keeps its writes out.

Evidence: its processes were stopped, the engine's own interface had given one up (where it has one), none is stopped any more, and the job
committed a batch since then.
Checked against: Kafka Streams 4.3 and Flink 2.3, whose sessions end below the default in our jobs (6 s).
"""

from __future__ import annotations

import signal
import time
from typing import Any

import psutil
from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext
from streamproof.faults.process import members
from streamproof.faults.process.members import MemberFault, MemberParameters
from streamproof.jobs.profile import Role
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import signal_recorded, statuses

AWAKE_S = 2.0
"""So long it is awake beside those that took over, before the run may end: that is when it does harm."""


class PauseProcessParameters(MemberParameters):
    seconds: float = Field(15.0, ge=0.5, le=120.0, description="How long it stands still, in s")


class PauseProcess(MemberFault):
    name = "pause_process"
    summary = "SIGSTOP one process of a job of several until the others have given it up, then wake it"
    parameters_model: type[Parameters] = PauseProcessParameters
    ends_connections = False

    def aim(self, run: RunContext, parameters: PauseProcessParameters) -> dict[str, Any]:
        return members.chosen(run, Role(parameters.role))

    def inject(self, run: RunContext, parameters: PauseProcessParameters, target: dict[str, Any]) -> None:
        signal_recorded(target["victims"], signal.SIGSTOP)
        target["batches"] = run.progress.batches()

    def evidence(self, run: RunContext, parameters: PauseProcessParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        stopped = run.eventually(lambda: statuses(target["victims"]) == {psutil.STATUS_STOPPED}, members.AGAIN_S)
        begun = time.monotonic()
        given_up = members.given_up(run, Role(parameters.role), target, parameters.seconds)
        run.let_pass(max(parameters.seconds - (time.monotonic() - begun), 0.0))
        pids = ", ".join(str(victim["pid"]) for victim in target["victims"])
        told = f"pids {pids}; {run.progress.batches() - target['batches']} micro-batches meanwhile"
        healed = self.heal(run.testbed, run.folder, target)
        run.over.set()
        on = run.eventually(lambda: run.progress.batches() > target["batches"], members.EVIDENCE_S)
        run.let_pass(AWAKE_S)
        return [
            EvidenceCheck(f"its processes stood still for {parameters.seconds:g} s", stopped, told),
            *([given_up] if given_up is not None else []),
            *healed,
            EvidenceCheck("the job committed a batch since then", on, f"{run.progress.batches()} batches"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        signal_recorded(target["victims"], signal.SIGCONT)
        found = statuses(target["victims"])
        return [EvidenceCheck("none of them is stopped", psutil.STATUS_STOPPED not in found, ", ".join(sorted(found)) or "gone")]
