"""One of several brokers is killed, the one that has a certain part to play: the others take the part over, and the job goes on.

Each fault, a file of its own, says which part; the moments are the same for all. The broker is started again only after the job has shown
that it goes on without it.
"""

from __future__ import annotations

import signal
from typing import Any

from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.faults.outage import gone, server_process, signalled
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError, wait_until

AIM_S = 60.0
EVIDENCE_S = 150.0  # Spark's driver may wait a minute for the broker that is gone (`default.api.timeout.ms` of its admin client)


class KilledBrokerParameters(Parameters):
    batches: int = Field(2, ge=1, le=20, description="How many micro-batches are committed before the broker is started again")


class KilledBroker(Unconditional):
    """``part`` is what the broker does for the job."""

    least_brokers = 3
    part: str
    name: str
    summary: str
    target: str
    parameters_model: type[Parameters] = KilledBrokerParameters

    def batches(self, parameters: KilledBrokerParameters) -> int:
        return parameters.batches + 2

    def find(self, run: RunContext) -> dict[str, Any] | None:
        """Whose part it is now: ``broker`` is its id, ``of`` and whatever else :meth:`holder` needs to ask again."""
        raise NotImplementedError

    def holder(self, testbed: Testbed, target: dict[str, Any]) -> int | None:
        """The id of the broker that has the part now, None or -1 while none has."""
        raise NotImplementedError

    def aim(self, run: RunContext, parameters: Any) -> dict[str, Any]:
        return {"role": self.target}

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        target |= run.wait_for(f"a broker that is {self.part}", lambda: self.find(run), AIM_S)
        target |= server_process(run.testbed.brokers[target["broker"] - 1])
        target["batches"] = run.progress.batches()
        signalled(target, signal.SIGKILL)

    def evidence(self, run: RunContext, parameters: KilledBrokerParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        ended, before = gone(run, target), target["broker"]

        def taken_over() -> bool:
            return self.holder(run.testbed, target) not in (None, -1, before)

        moved = run.eventually(taken_over, EVIDENCE_S)
        needed = target["batches"] + 1 + parameters.batches  # one may have been at its last step
        on = run.eventually(lambda: run.progress.batches() >= needed, EVIDENCE_S)
        committed = max(0, run.progress.batches() - target["batches"] - 1)
        now = self.holder(run.testbed, target)
        return [
            ended,
            EvidenceCheck(f"another broker is {self.part} of {target['of']}", moved, f"it was broker {before}, it is broker {now}"),
            EvidenceCheck(f"{parameters.batches} micro-batches were committed without it", on, f"{committed}"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        return [caught_up()]


def caught_up() -> EvidenceCheck:
    """Start whoever is gone, and wait until every broker has all that it is to hold."""
    cluster = Cluster(embedded.up().direct_kafka)
    try:
        wait_until("every partition to be in sync", lambda: not cluster.out_of_sync(), EVIDENCE_S)
    except TestbedError:
        return EvidenceCheck("every broker has all that it is to hold", False, f"out of sync: {', '.join(cluster.out_of_sync())}")
    return EvidenceCheck("every broker has all that it is to hold", True, "no partition is out of sync")
