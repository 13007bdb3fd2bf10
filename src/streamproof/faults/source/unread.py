"""What faults share by which records vanish from the input before the job has read them.

No job can deliver them. What it can do is to say so: Spark's Kafka source ends the query (``failOnDataLoss``: *Some data may have been lost
because they are not available in Kafka any more*), and each start of it after that, until somebody has looked. With the experiment's
``fail_on_data_loss: false`` it goes on without a word, and the records are LOST. A sink that is exactly-once changes nothing of that: the
table holds what the source gave.

Done as ``lose_last_commit`` does it: while the driver stands still (SIGSTOP) and nothing is planned behind the last commit; then the driver
is killed, and the next start meets what was done. A job that ended because of it is started once more with ``failOnDataLoss=false``, as
somebody would who has looked and wants the rest: so that the run comes to an end, and names what is gone.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

from streamproof.engines.spark import checkpoints
from streamproof.engines.spark.job import SparkJob
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.made_anew import MadeAnew
from streamproof.faults.ended import ended_saying
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext
from streamproof.faults.process.hold import wake
from streamproof.faults.process.kill_driver import EVIDENCE_S
from streamproof.faults.spark.lose_last_commit import LoseLastCommit
from streamproof.jobs import down
from streamproof.jobs.profile import JobProfile
from streamproof.load.gate import HOLD, Gate, Orders
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.verdict.anomaly import Anomaly

SAYS = ("the query failed: Some data may have been lost", "KAFKA_DATA_LOSS")
"""What the driver's log says at the end: an executor's error has no class, the driver's own has one."""
ERROR = re.compile(r"KAFKA_DATA_LOSS\.[A-Z_]+|\w+Exception(?=: Some data may have been lost)|OffsetOutOfRangeException")


class UnreadInput(LoseLastCommit):
    """Its target holds ``below``: up to where the records of each partition are gone, as the evidence counts their places."""

    target = "the input topic, and the driver"

    def provokes(self, profile: JobProfile, parameters: dict[str, Any]) -> list[Anomaly]:
        return sorted({Anomaly.LOST} - profile.guarantee.forbidden)  # what breaks the promise makes the run FAILED

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Not for chance: a random schedule is one that a job has to survive."""
        return None

    def batches(self, parameters: Any) -> int:
        return 4

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        return {**super().aim(run, parameters), "topic": run.job.input_topic, "gate": Gate(run.folder).read()}

    def vanished(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        """That the records are gone, read back from the broker."""
        raise NotImplementedError

    def noticed(self, target: dict[str, Any]) -> bool:
        """Whether the source can see that records are gone."""
        return True

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        job, start = SparkJob.read(run.folder), target["start"]

        def refused() -> list[int]:
            return ended_saying(run.folder, start + 1, SAYS)

        vanished = self.vanished(run, target)
        run.eventually(lambda: bool(refused()) or run.progress.last_start() > start, EVIDENCE_S)
        if job.fail_on_data_loss and self.noticed(target):
            before, starts = run.progress.last_start(), refused()
            replace(job, fail_on_data_loss=False).write()
            met = [
                EvidenceCheck("a start of the job ended and its log says why", bool(starts), _said(run, starts)),
                EvidenceCheck("nothing was committed meanwhile", before <= start, f"the last batch is one of start {before}"),
            ]
        else:
            met = [EvidenceCheck("the job went on without a word", not refused(), _said(run, refused()))]
        on = run.eventually(lambda: self._behind(run, target), EVIDENCE_S)
        until = {number: run.progress.until().get(number, 0) for number in target["below"]}
        checks = super(LoseLastCommit, self).evidence(run, parameters, target)
        return [*vanished, *met, EvidenceCheck("the job went on behind what is gone", on, f"up to {until}"), *checks]

    def _behind(self, run: RunContext, target: dict[str, Any]) -> bool:
        until = run.progress.until()
        return all(until.get(number, 0) >= below for number, below in target["below"].items())

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """What is deleted is gone. The topic belongs to the run and is deleted with it."""
        wake(target["driver"])
        down.lift(folder)
        gate, orders = Gate(folder), Orders(folder)
        if target.get("gate_opened") and gate.read() == {"records": target["gate_opened"], "ahead": None}:
            gate.open_to(**target["gate"])
        orders.withdraw(HOLD)
        return [EvidenceCheck("the source sends again", HOLD not in orders.active(), f"orders: {orders.active() or 'none'}")]


def _said(run: RunContext, starts: list[int]) -> str:
    if not starts:
        return "no start ended so"
    logs = [(run.folder.logs / f"driver-{start}.log").read_text(errors="replace") for start in starts]
    errors = sorted({error for log in logs for error in ERROR.findall(log)})
    return f"starts {starts} ended: {', '.join(errors) or SAYS[0]}"


def ends(run: RunContext) -> dict[str, int]:
    """Where each partition of the input ends, as the evidence counts its places."""
    found = MadeAnew.of(run.folder).placed(Cluster(run.testbed.direct_kafka).end_offsets(run.job.input_topic))
    return {str(number): end for number, end in found.items()}


def unread(run: RunContext, below: dict[str, int]) -> int:
    """How many records before these places the job has not committed, by its checkpoint: what it reports comes a moment later."""
    checkpoint = run.job.checkpoint()
    batch = checkpoints.last(checkpoint / "commits")
    until = {} if batch is None else MadeAnew.of(run.folder).committed(checkpoints.committed(checkpoint), batch)
    return sum(max(0, end - until.get(number, 0)) for number, end in below.items())
