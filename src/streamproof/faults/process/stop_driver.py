"""``stop_driver``: ask the driver to end, by SIGTERM, while it has read records that it has not delivered.

The model: a deployment that is rolled out, the most frequent end of any job. What a job does on its way out must be as right as what it
does at work: one that commits what it has read, and forgets what it still holds, loses a little with every release.

A job that waits for a full batch, or for a second to pass, holds something only in between. So the workload stops until the job has
delivered what it had, then less than a batch is sent, and the signal comes a moment later, which the seed draws. After ``grace_s`` it gets
SIGKILL, as from a container engine.

Evidence: the driver's processes are gone, by themselves or not; the job was started again and committed a batch.
Checked against: Docker (``docker stop`` sends SIGTERM, and SIGKILL after 10 s), systemd and Kubernetes (the same after 90 s and 30 s).
"""

from __future__ import annotations

import random
import signal
import time
from typing import Any

from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import DRIVER, EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.faults.process.kill_driver import gone_and_back
from streamproof.jobs.profile import JobProfile, Role
from streamproof.load.gate import Gate
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster

IDLE_S = 3.0
"""So long a job that has something left may take to deliver it."""
PART = 0.75
"""Of a batch that is sent then: the generator stops up to half a batch before its limit."""
EARLIEST_S, LATEST_S = 0.1, 0.5


class StopDriverParameters(Parameters):
    grace_s: float = Field(10.0, ge=0.0, le=60.0, description="How long it may take to end by itself, in s; then it gets SIGKILL")


class StopDriver(Unconditional):
    name = "stop_driver"
    summary = "Ask the driver to end by SIGTERM while it has read records that it has not delivered, as a deployment does"
    target = "the driver"
    parameters_model: type[Parameters] = StopDriverParameters
    of_roles = frozenset({Role.DRIVER})
    occupies = frozenset({DRIVER})
    ends_connections = True
    sites = frozenset()

    def batches(self, parameters: Any) -> int:
        return 3

    def outside(self, parameters: Any) -> frozenset[embedded.Role]:
        return frozenset()

    def here_only(self, parameters: Any) -> frozenset[Role]:
        return frozenset({Role.DRIVER})

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        return {}

    def aim(self, run: RunContext, parameters: Any) -> dict[str, Any]:
        delay_s = round(run.rng.uniform(EARLIEST_S, LATEST_S), 3)
        return {"role": self.target, "start": run.driver()["start"], "killed": run.recorded(Role.DRIVER), "delay_s": delay_s}

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        gate = Gate(run.folder)
        before, topic = gate.read(), Cluster(run.testbed.direct_kafka)
        try:
            gate.open_to(min(int(before["records"]), _sent(run, topic)))
            run.eventually(lambda: run.progress.committed() >= _sent(run, topic), IDLE_S)
            gate.open_to(min(run.records, _sent(run, topic) + int(PART * run.job.batch_records)))
            run.let_pass(target["delay_s"])
            target["held"] = _sent(run, topic) - run.progress.committed()
            run.kill(target["killed"], signal.SIGTERM)
        finally:
            gate.open_to(int(before["records"]), before["ahead"])

    def evidence(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> list[EvidenceCheck]:
        begun = time.monotonic()
        by_itself = run.eventually(lambda: run.gone(target["killed"]), parameters.grace_s)
        ended_s = time.monotonic() - begun
        if not by_itself:
            run.kill(target["killed"])
        gone, back = gone_and_back(run, target)
        how = f"by itself, after {ended_s:.1f} s" if by_itself else f"by SIGKILL, after {parameters.grace_s:g} s"
        told = f"{gone.detail}, {how}; {target['held']} records were sent and not committed when it was asked to"
        return [EvidenceCheck(gone.check, gone.passed, told), back]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """Nothing to undo: the supervisor starts the driver again."""
        return []


def _sent(run: RunContext, cluster: Cluster) -> int:
    return sum(cluster.end_offsets(run.job.input_topic).values())
