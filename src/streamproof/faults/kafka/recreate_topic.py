"""``recreate_topic``: the output topic is deleted and made again, under the same name. What it held is gone.

The model: a clean-up that takes the wrong topic, an infrastructure-as-code tool that replaces what it was to change. Kafka had acknowledged
those records and the job goes on as if nothing had been: the run FAILS with LOST, as it must. An oracle that believes in acknowledgements
would let it pass.

The input topic is left alone. Spark finds offsets there that do not exist and refuses to go on (``failOnDataLoss``), at each start anew.

Evidence: the topic reads back with another id, it had records before and began again at offset 0, and the job committed a micro-batch
afterwards. It cannot be healed: what is deleted is gone. The topic belongs to the run and is deleted with it.
Checked against: Kafka 4.1 (producers that are told of another id of a topic go on with that). Jobs with transactions are
refused: the markers of an open one would have nowhere to go.
"""

from __future__ import annotations

from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext
from streamproof.faults.kafka.forgotten import Forgotten
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster

HELD_S = 60.0
GONE_S = 30.0
EVIDENCE_S = 90.0


class RecreateTopic(Forgotten):
    name = "recreate_topic"
    summary = "Delete the output topic with all that it holds, and make it again"
    target = "the output topic"

    def batches(self, parameters: Parameters) -> int:
        return 3

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        topic, cluster = run.job.output_topic, Cluster(run.testbed.direct_kafka)
        description = {"id": cluster.topic_id(topic), "partitions": cluster.partitions(topic)}
        return {"role": self.target, "topic": topic, **description}

    def inject(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> None:
        topic, cluster = target["topic"], Cluster(run.testbed.direct_kafka)
        target["held"] = run.wait_for("records in the output", lambda: sum(cluster.end_offsets(topic).values()), HELD_S)
        cluster.delete_topics([topic])
        run.wait_for(f"{topic} to be gone", lambda: not cluster.partitions(topic), GONE_S)
        cluster.create_topics({topic: target["partitions"]})

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        topic, cluster = target["topic"], Cluster(run.testbed.direct_kafka)
        before, now = run.progress.batches(), cluster.topic_id(topic)
        on = run.eventually(lambda: run.progress.batches() > before, EVIDENCE_S)
        starts = cluster.start_offsets(topic)
        return [
            EvidenceCheck("the topic is another one", now != target["id"], f"its id was {target['id']}, it is {now}"),
            EvidenceCheck("what it held is gone", not any(starts.values()), f"{target['held']} records; its partitions begin at {starts}"),
            EvidenceCheck("the job committed a batch afterwards", on, f"{run.progress.batches() - before}"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        return []
