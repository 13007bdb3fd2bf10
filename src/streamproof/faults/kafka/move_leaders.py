"""``move_leaders``: another broker leads each partition of the job's topics from now on.

The model: an operator rebalances a cluster, or restarts its brokers one after the other. Nothing dies; each client is told by the old
leader that it is not the leader any more, and has to find the new one.

The replicas of each partition are put in another order, then the first of them is elected.

Evidence: the leader of each partition reads back as the broker that was to lead it, another than before, and the job committed the wanted
number of micro-batches afterwards. There is nothing to heal: one broker is as good as another, and the topics are the run's own.
Checked against: Kafka 4.1 (AlterPartitionReassignments, ElectLeaders).
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster

EVIDENCE_S = 90.0


class MoveLeadersParameters(Parameters):
    batches: int = Field(2, ge=1, le=20, description="How many micro-batches are committed afterwards")


class MoveLeaders(Unconditional):
    name = "move_leaders"
    summary = "Have another broker lead each partition of the job's topics"
    target = "the leaders of the job's topics"
    least_brokers = 3
    parameters_model = MoveLeadersParameters

    def batches(self, parameters: MoveLeadersParameters) -> int:
        return parameters.batches + 2

    def aim(self, run: RunContext, parameters: MoveLeadersParameters) -> dict[str, Any]:
        cluster = Cluster(run.testbed.direct_kafka)
        topics = [topic for topic in (run.job.input_topic, run.job.output_topic) if cluster.partitions(topic)]
        return {"role": self.target, "before": {topic: _by_text(cluster.leaders(topic)) for topic in topics}}

    def inject(self, run: RunContext, parameters: MoveLeadersParameters, target: dict[str, Any]) -> None:
        cluster = Cluster(run.testbed.direct_kafka)
        target["wanted"] = {topic: _by_text(cluster.move_leaders(topic)) for topic in target["before"]}
        target["batches"] = run.progress.batches()

    def evidence(self, run: RunContext, parameters: MoveLeadersParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        cluster = Cluster(run.testbed.direct_kafka)
        checks = []
        for topic, leaders in target["wanted"].items():
            led = run.eventually(lambda topic=topic, leaders=leaders: _by_text(cluster.leaders(topic)) == leaders, EVIDENCE_S)  # type: ignore[misc]
            before, now = target["before"][topic], _by_text(cluster.leaders(topic))
            other = all(now[number] != broker for number, broker in before.items())
            checks.append(EvidenceCheck(f"another broker leads each partition of {topic}", led and other, f"{before} before, {now} now"))
        wanted_batches = target["batches"] + 1 + parameters.batches  # the one in flight had found its leaders
        on = run.eventually(lambda: run.progress.batches() >= wanted_batches, EVIDENCE_S)
        committed = max(0, run.progress.batches() - target["batches"] - 1)
        return [*checks, EvidenceCheck(f"{parameters.batches} micro-batches were committed afterwards", on, f"{committed}")]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        return []


def _by_text(leaders: dict[int, int]) -> dict[str, int]:
    """As it reads back from a journal."""
    return {str(number): broker for number, broker in sorted(leaders.items())}
