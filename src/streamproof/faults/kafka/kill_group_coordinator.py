"""``kill_group_coordinator``: SIGKILL the broker that keeps the committed offsets of the job's consumer group.

The model: a broker's machine dies that the job asks how far it has come, and tells it. The offsets are in a replicated log; another broker
reads them there. A commit that was under way may or may not have been carried out.

Evidence: its process is gone, the group's coordinator reads back as another broker, and the job committed the wanted number of
micro-batches before the broker was started again. Healing waits until it has caught up.
Checked against: Kafka 4.1 (``__consumer_offsets`` on three brokers; FindCoordinator).
"""

from __future__ import annotations

from typing import Any

from streamproof.faults.fault import RunContext
from streamproof.faults.kafka.killed_broker import KilledBroker
from streamproof.jobs.profile import Trait
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster


class KillGroupCoordinator(KilledBroker):
    name = "kill_group_coordinator"
    summary = "SIGKILL the broker that keeps the committed offsets of the job's consumer group"
    target = "the coordinator of the consumer group"
    part = "group coordinator"
    of_traits = frozenset({Trait.GROUP_OFFSETS})

    def find(self, run: RunContext) -> dict[str, Any] | None:
        broker = Cluster(run.testbed.direct_kafka).coordinator("group", run.job.name)
        return None if broker is None else {"broker": broker, "of": run.job.name}

    def holder(self, testbed: Testbed, target: dict[str, Any]) -> int | None:
        return Cluster(testbed.direct_kafka).coordinator("group", target["of"])
