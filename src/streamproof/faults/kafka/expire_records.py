"""``expire_records``: the input topic forgets what the job has already committed.

The model: retention. Kafka deletes old records when a topic's time or size is up, whoever has read them. A job that goes on from its
committed offsets does not notice; one that reads from the beginning once more, or whose progress is older than its output, finds nothing.

Only what lies below the job's committed offsets is deleted. Were it more, Spark would refuse to go on (``failOnDataLoss`` is true here: the
query fails, and fails again at each start) rather than lose it; with ``failOnDataLoss=false`` it would pass over the gap -> LOST.

Evidence: the broker reads each partition's first offset back as it was asked for, later than it was, and the job commits two more
micro-batches.
It cannot be healed: what is deleted is gone. The topic belongs to the run and is deleted with it.
Checked against: Kafka 4.1 (DeleteRecords moves the log's start offset) and Spark 4.1 (``KafkaMicroBatchStream`` plans from where the last
batch ended).
"""

from __future__ import annotations

import random
from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.jobs.profile import JobProfile
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster

COMMITTED_S = 60.0
EVIDENCE_S = 60.0
BATCHES = 2


class ExpireRecords(Unconditional):
    name = "expire_records"
    summary = "Delete those records of the input topic that the job has committed"
    target = "the input topic"
    parameters_model = Parameters

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        super().check(profile, parameters)
        if not profile.knows_offsets:
            raise ValueError(f"{self.name}: what {profile.name!r} has committed cannot be read: records that it still needs might go")

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Not by chance: another fault may have the job read again what is gone."""
        return None

    def batches(self, parameters: Parameters) -> int:
        return BATCHES + 1

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        topic, cluster = run.job.input_topic, Cluster(run.testbed.direct_kafka)
        return {"role": self.target, "topic": topic, "before": _by_name(cluster.start_offsets(topic)), "below": {}}

    def inject(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> None:
        def committed() -> dict[str, int]:
            return {number: at for number, at in run.progress.until().items() if at > target["before"].get(number, 0)}

        target["below"] = run.wait_for("records that the job has committed", committed, COMMITTED_S)
        cluster = Cluster(run.testbed.direct_kafka)
        cluster.delete_records(target["topic"], {int(number): at for number, at in target["below"].items()})

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        now = _by_name(Cluster(run.testbed.direct_kafka).start_offsets(target["topic"]))
        forgotten = sum(at - target["before"].get(number, 0) for number, at in target["below"].items())
        begin = run.progress.batches()
        on = run.eventually(lambda: run.progress.batches() >= begin + BATCHES, EVIDENCE_S)
        there = all(now.get(number) == at for number, at in target["below"].items())
        return [
            EvidenceCheck(
                "each partition begins where the job has committed", there, f"first offsets: {now}, {forgotten} records are gone"
            ),
            EvidenceCheck("the job went on", on, f"{run.progress.batches() - begin} micro-batches"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        return []


def _by_name(offsets: dict[int, int]) -> dict[str, int]:
    return {str(number): offset for number, offset in offsets.items()}
