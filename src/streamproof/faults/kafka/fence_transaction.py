"""``fence_transaction``: another producer takes over the transactional id of an open transaction of the job.

The model: a second instance of the job that was started by mistake, an old one that comes back, an operator who clears hanging
transactions. Kafka gives an id to whoever asked last: the transaction that was open is aborted, and its producer is refused from then on.

An open transaction of the job is found; the driver is stopped (SIGSTOP) and it is seen that nothing was decided about the transaction;
another producer initialises its transactional id; the driver goes on. A transaction that was decided is left alone: a decision to commit
that can no longer be carried out is a loss, which ``two_phase_commit`` reports by ending the job.

Evidence: the coordinator names a later epoch, or another producer, for the id, and no open transaction; the job ran into it (a task failed,
or the driver was started again) and committed a batch afterwards.
Checked against: Kafka 4.1 (InitProducerId aborts the open transaction and raises the epoch).
"""

from __future__ import annotations

from typing import Any

from streamproof.engines.spark.decisions import DecisionLog
from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.faults.process.hold import driver_stopped, wake
from streamproof.faults.spark import executors
from streamproof.jobs.profile import Role, Trait
from streamproof.kafka.transactions import Coordinator, Prepared
from streamproof.testbed import kafka
from streamproof.testbed.embedded import Testbed

STRIKE_S = 60.0
EVIDENCE_S = 120.0


class FenceTransaction(Unconditional):
    name = "fence_transaction"
    summary = "Take over the transactional id of an open transaction of the job"
    target = "an open transaction of the job"
    parameters_model = Parameters
    of_roles = frozenset({Role.EXECUTORS})
    of_traits = frozenset({Trait.KAFKA_TRANSACTIONS})

    def batches(self, parameters: Parameters) -> int:
        return 3

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        start = run.driver()
        driver = run.folder.read_json(run.folder.path / "driver.json")
        return {"role": self.target, "known": start, "driver": driver, "failed_tasks": executors.failed_tasks(start)}

    def inject(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> None:
        with Coordinator(run.testbed.direct_kafka) as coordinator:
            target["fenced"] = run.wait_for(
                "an open transaction that nobody has decided about", lambda: _fence(run, coordinator, target), STRIKE_S
            )

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        fenced = Prepared(**target["fenced"])
        with Coordinator(run.testbed.direct_kafka) as coordinator:
            held, state = coordinator.holder(fenced.transactional_id)
        raised = held.producer_id != fenced.producer_id or held.epoch > fenced.epoch
        noticed = executors.ran_into(run, target["known"]["start"], target["failed_tasks"], EVIDENCE_S)
        on = run.goes_on(EVIDENCE_S)
        return [
            EvidenceCheck("the coordinator gave the id to another", raised, f"epoch {fenced.epoch} before, {held.epoch} now"),
            EvidenceCheck("the transaction is not open any more", state != "Ongoing", f"{fenced.transactional_id} is {state}"),
            noticed,
            on,
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """The id is the job's to take back; a driver that was left stopped is woken."""
        wake(target["driver"])
        return []


def _fence(run: RunContext, coordinator: Coordinator, target: dict[str, Any]) -> dict[str, Any] | None:
    """Fence an open transaction of the job; the transaction as it was, None when there was none to fence."""
    ongoing = coordinator.ongoing(f"{run.job.name}.")
    if not ongoing:
        return None
    with driver_stopped(target["driver"]):
        decided = [
            transaction
            for transactions in DecisionLog(run.job.checkpoint("decisions")).unfinished().values()
            for transaction in transactions
        ]
        held, state = coordinator.holder(ongoing[0].transactional_id)
        if held in decided or held != ongoing[0] or state != "Ongoing":
            return None
        kafka.fence(run.testbed.direct_kafka, held.transactional_id)
        return held.to_dict()
