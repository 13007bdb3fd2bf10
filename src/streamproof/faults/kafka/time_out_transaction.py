"""``time_out_transaction``: the broker aborts a transaction of the job whose time is over, while the job is held.

The model: a task that hangs in a collection of garbage, a decision log on a disk that does not answer, a driver that comes back too late.
A transaction's time runs from its start (``transaction_timeout_s`` of the experiment); when it is over, the coordinator aborts the
transaction and refuses its producer from then on.

Whoever passes the step first is held there until the broker has aborted what was open then: with ``decided: false`` a task
whose transaction nobody has decided about (``after_prepare``, ``after_offsets``). That costs no record: what is aborted is done again.
With ``decided: true`` it is the driver of ``two_phase_commit``, which has forced its decision to commit to disk (``after_decision``). That
decision cannot be carried out any more, which no two-phase commit over Kafka's transactions can help. What the job does about it is the
experiment's ``on_lost_decision``: it ends (the run is an ERROR that names the transaction), or goes on, and the records are LOST.

Evidence: the coordinator says that it aborted the transaction; the job was still held at the step then; it ran into it (a task failed, the
driver was started again, or the job journaled the loss) and committed a batch afterwards.
Checked against: Kafka 4.1 (``TransactionCoordinator``: looks for transactions whose time is over every
``transaction.abort.timed.out.transaction.cleanup.interval.ms``, aborts them and raises the epoch); Flink's Kafka connector
(``KafkaCommitter``: a transaction that was fenced or aborted is logged and passed over, as with ``go_on``).
"""

from __future__ import annotations

import random
import time
from typing import Any

from pydantic import Field

from streamproof.engines.spark import failpoints
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import DecisionLost
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.faults.process.hold import held
from streamproof.faults.spark import executors
from streamproof.jobs.failpoint import Site
from streamproof.jobs.profile import JobProfile, Role, Trait
from streamproof.kafka.transactions import Coordinator
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.anomaly import Anomaly

ABORT_S = 30.0
EVIDENCE_S = 120.0


class TimeOutTransactionParameters(Parameters):
    decided: bool = Field(False, description="Whether it is one that was decided to be committed, which is then lost")


class TimeOutTransaction(Unconditional):
    name = "time_out_transaction"
    summary = "Hold the job until the broker aborts an open transaction of it, whose time is over"
    target = "an open transaction of the job, and who holds it"
    parameters_model = TimeOutTransactionParameters
    of_roles = frozenset({Role.EXECUTORS})
    of_traits = frozenset({Trait.KAFKA_TRANSACTIONS})
    sites = frozenset[Site]()

    def batches(self, parameters: TimeOutTransactionParameters) -> int:
        return 3

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        super().check(profile, parameters)
        if profile.open_transaction_step is None:
            raise ValueError(f"{self.name}: a job with {profile.name!r} has no step at which a transaction is open")
        if TimeOutTransactionParameters.model_validate(parameters).decided and profile.decided_transaction_step is None:
            raise ValueError(f"{self.name}: a job with {profile.name!r} decides nothing about its transactions; leave `decided` out")

    def provokes(self, profile: JobProfile, parameters: dict[str, Any]) -> list[Anomaly]:
        return [Anomaly.LOST] if TimeOutTransactionParameters.model_validate(parameters).decided else []

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """It takes as long as a transaction may, which by default is longer than all else in a run."""
        return None

    def aim(self, run: RunContext, parameters: TimeOutTransactionParameters) -> dict[str, Any]:
        driver_start = run.driver()
        return {
            "role": self.target,
            "step": run.profile.decided_transaction_step if parameters.decided else run.profile.open_transaction_step,
            "timeout_s": run.job.transaction_timeout_ms / 1000,
            "start": driver_start["start"],
            "failed_tasks": executors.failed_tasks(driver_start),
            "lost": len(run.folder.journal.all(DecisionLost)),
        }

    def inject(self, run: RunContext, parameters: TimeOutTransactionParameters, target: dict[str, Any]) -> None:
        bound_s = target["timeout_s"] + ABORT_S
        with held(run, target["step"], bound_s) as hold, Coordinator(run.testbed.direct_kafka) as coordinator:
            begun = time.monotonic()
            open_then = [transaction.transactional_id for transaction in coordinator.ongoing(f"{run.job.name}.")]

            def aborted() -> dict[str, str] | None:
                """Of what is decided all must be: a batch that is lost in part would be torn besides."""
                states = {name: coordinator.holder(name)[1] for name in open_then}
                aborting = {name: state for name, state in states.items() if state.endswith("Abort")}
                return aborting if aborting and (not parameters.decided or aborting == states) else None

            target["aborted"] = run.wait_for("open transactions to be aborted by the broker", aborted, bound_s)
            target |= {"waited_s": round(time.monotonic() - begun, 1), "held": hold.still is not None and hold.still()}

    def evidence(self, run: RunContext, parameters: TimeOutTransactionParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        if parameters.decided:
            noticed = _lost(run, target["lost"])
        else:
            noticed = executors.ran_into(run, target["start"], target["failed_tasks"], EVIDENCE_S)
        on = run.goes_on(EVIDENCE_S)
        states = ", ".join(f"{name} is {state}" for name, state in sorted(target["aborted"].items()))
        waited = f"{target['waited_s']} s after that was looked for; they may last {target['timeout_s']:.0f} s"
        return [
            EvidenceCheck("the broker aborted what nobody had ended", bool(target["aborted"]), f"{states}, {waited}"),
            EvidenceCheck("the job was held until then", target["held"], f"at {target['step']}"),
            noticed,
            on,
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """Whoever is still held goes on."""
        failpoints.disarm(folder, target["step"])
        return []


def _lost(run: RunContext, before: int) -> EvidenceCheck:
    """That the job journals more transactions that it decided to commit and could not than ``before``."""
    noticed = run.eventually(lambda: len(run.folder.journal.all(DecisionLost)) > before, EVIDENCE_S)
    lost = len(run.folder.journal.all(DecisionLost)) - before
    return EvidenceCheck("the job ran into it", noticed, f"{lost} transactions that it had decided to commit were lost")
