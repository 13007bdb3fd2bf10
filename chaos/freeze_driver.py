"""``freeze_driver``: SIGSTOP the driver for some seconds, then let it go on.

A fault of this project's own, registered in ``streamproof.toml``; it breaks any job that has a driver, on Spark or not.

The model: a garbage collection that takes seconds, a virtual machine that moves to another host. The driver goes on where
it was, with the leases, sessions and transactions of before; whoever counts its heartbeats may have given it up meanwhile.

Evidence: its processes were stopped, the job committed nothing meanwhile, none is stopped any more, and a batch was committed afterwards.
Checked against: Spark 4.1 and librdkafka 2.16, whose time-outs (30 s and 6 s in our jobs) the default stays below.
"""

from __future__ import annotations

import random
import signal
from typing import Any

import psutil
from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import EvidenceCheck
from streamproof.faults.fault import DRIVER, STALL, Parameters, RunContext, Unconditional
from streamproof.jobs.failpoint import Site
from streamproof.jobs.profile import JobProfile, Role
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import signal_recorded, statuses

EVIDENCE_S = 60.0


class FreezeDriverParameters(Parameters):
    seconds: float = Field(3.0, ge=0.5, le=20.0, description="How long it is frozen, in s")


class FreezeDriver(Unconditional):
    name = "freeze_driver"
    summary = "SIGSTOP the driver for some seconds, then let it go on"
    target = "the driver"
    parameters_model = FreezeDriverParameters
    of_roles = frozenset({Role.DRIVER})
    occupies = frozenset({DRIVER, STALL})
    sites = frozenset[Site]()  # a job that is held at a step commits nothing anyway

    def outside(self, parameters: Any) -> frozenset[embedded.Role]:
        return frozenset()

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Never: a seed is to draw the same schedule in this project as in any other."""
        return None

    def aim(self, run: RunContext, parameters: FreezeDriverParameters) -> dict[str, Any]:
        run.driver()
        return {"role": self.target, "frozen": run.recorded(Role.DRIVER)}

    def inject(self, run: RunContext, parameters: FreezeDriverParameters, target: dict[str, Any]) -> None:
        signal_recorded(target["frozen"], signal.SIGSTOP)
        target["batches"] = run.progress.batches()

    def evidence(self, run: RunContext, parameters: FreezeDriverParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        stopped = run.eventually(lambda: statuses(target["frozen"]) == {psutil.STATUS_STOPPED}, EVIDENCE_S)
        run.let_pass(parameters.seconds)
        during = run.progress.batches() - target["batches"]  # what it had committed already may be seen a moment later
        run.over.set()
        pids = f"pids {', '.join(str(victim['pid']) for victim in target['frozen'])}"
        return [
            EvidenceCheck("the driver's processes were stopped", stopped, pids),
            EvidenceCheck(f"the job committed nothing for {parameters.seconds:g} s", during <= 1, f"{during} micro-batches"),
            *self.heal(run.testbed, run.folder, target),
            run.goes_on(EVIDENCE_S),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        signal_recorded(target["frozen"], signal.SIGCONT)
        states = statuses(target["frozen"])
        return [
            EvidenceCheck("no process of the driver is stopped", psutil.STATUS_STOPPED not in states, ", ".join(sorted(states)) or "gone")
        ]
