"""``add_partitions``: the input topic grows while the job reads it.

The model: an operator scales a topic up. Records go to the new partitions at once; a job that looks for partitions only at its start
never reads them, one that starts them at *latest* loses what was written before it looked.

Evidence: the broker lists the new count, the workload wrote to each new partition, and the job went on afterwards. How far it has read them
is told; that it read *all* of them is the checker's business, which finds as lost what nobody read.
It cannot be healed: Kafka does not shrink a topic. The topic belongs to the run and is deleted with it.
"""

from __future__ import annotations

import random
from typing import Any

from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.jobs.profile import JobProfile
from streamproof.testbed.embedded import Role, Testbed
from streamproof.testbed.kafka import Cluster

FOUND_S = 45.0


class AddPartitionsParameters(Parameters):
    count: int = Field(2, ge=1, le=64, description="How many partitions are added")


class AddPartitions(Unconditional):
    name = "add_partitions"
    summary = "Add partitions to the input topic while the job reads it"
    target = "the input topic"
    parameters_model = AddPartitionsParameters
    occupies = frozenset({"kafka", "the input topic"})

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        return {"count": rng.randint(1, 2)}

    def outside(self, parameters: Any) -> frozenset[Role]:
        return frozenset()

    def batches(self, parameters: AddPartitionsParameters) -> int:
        """Two that were sent before the partitions were there, one whose records reach them, one to spare."""
        return 4

    def aim(self, run: RunContext, parameters: AddPartitionsParameters) -> dict[str, Any]:
        before = Cluster(run.testbed.direct_kafka).partitions(run.job.input_topic)
        return {"role": self.target, "topic": run.job.input_topic, "before": before, "after": before + parameters.count}

    def inject(self, run: RunContext, parameters: AddPartitionsParameters, target: dict[str, Any]) -> None:
        Cluster(run.testbed.direct_kafka).add_partitions(target["topic"], target["after"])
        target["batches"] = run.progress.batches()

    def evidence(self, run: RunContext, parameters: AddPartitionsParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        cluster = Cluster(run.testbed.direct_kafka)
        added = [str(number) for number in range(target["before"], target["after"])]
        run.eventually(lambda: all(run.progress.until().get(number, 0) > 0 for number in added), FOUND_S)
        read = {number: run.progress.until().get(number, 0) for number in added}
        count = cluster.partitions(target["topic"])
        ends = cluster.end_offsets(target["topic"])
        written = {number: ends.get(int(number), 0) for number in added}
        return [
            EvidenceCheck("the broker lists the new partitions", count == target["after"], f"{target['before']} before, {count} after"),
            EvidenceCheck("the workload wrote to each new partition", all(written.values()), f"records by partition: {written}"),
            EvidenceCheck(
                "the job committed a batch afterwards",
                run.progress.batches() > target["batches"],
                f"of the new ones it has read up to offset: {read}",
            ),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        return []
