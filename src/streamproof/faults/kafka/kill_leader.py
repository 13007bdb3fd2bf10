"""``kill_leader``: SIGKILL the broker that leads a partition of the input.

The model: a broker's machine dies in a cluster of three. What it led is led by another that is in sync; clients learn of it when they are
refused or cut off, and ask again. Nothing that was acknowledged by all in-sync replicas is lost.

Evidence: its process is gone, the partition's leader reads back as another broker, and the job committed the wanted number of micro-batches
before the broker was started again. Healing waits until it has caught up.
Checked against: Kafka 4.1 in KRaft mode (three nodes, ``min.insync.replicas`` 2; a broker is fenced after ``broker.session.timeout.ms``);
Spark 4.1 (its driver asks for the latest offsets with an admin client that may wait for the dead broker until ``default.api.timeout.ms``, a
minute, has passed: the job makes no progress for so long).
"""

from __future__ import annotations

from typing import Any

from streamproof.faults.fault import RunContext
from streamproof.faults.kafka.killed_broker import KilledBroker
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster


class KillLeader(KilledBroker):
    name = "kill_leader"
    summary = "SIGKILL the broker that leads a partition of the input topic"
    target = "the leader of a partition of the input"
    part = "leader"

    def find(self, run: RunContext) -> dict[str, Any] | None:
        leaders = Cluster(run.testbed.direct_kafka).leaders(run.job.input_topic)
        partition = run.rng.choice(sorted(leaders))
        if leaders[partition] < 0:
            return None
        topic = run.job.input_topic
        return {"broker": leaders[partition], "of": f"{topic}-{partition}", "topic": topic, "partition": partition}

    def holder(self, testbed: Testbed, target: dict[str, Any]) -> int | None:
        return Cluster(testbed.direct_kafka).leaders(target["topic"]).get(target["partition"])
