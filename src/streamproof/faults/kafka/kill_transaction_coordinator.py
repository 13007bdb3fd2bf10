"""``kill_transaction_coordinator``: SIGKILL the broker that coordinates an open transaction of the job.

The model: a broker's machine dies while a commit is under way. The transaction's state is in a replicated log; another broker reads it
there and goes on. Who was about to end the transaction has to find the new coordinator, and to ask again without knowing whether its
first request was carried out.

Evidence: a transaction of the job was open, the process of its coordinator is gone, its coordinator reads back as another broker, and the
job committed the wanted number of micro-batches before the broker was started again. Healing waits until it has caught up.
Checked against: Kafka 4.1 (``__transaction_state`` on three brokers, ``transaction.state.log.min.isr`` 2; FindCoordinator, EndTxn).
"""

from __future__ import annotations

from typing import Any

from streamproof.faults.fault import RunContext
from streamproof.faults.kafka.killed_broker import AIM_S, KilledBroker
from streamproof.jobs.profile import Trait
from streamproof.kafka.transactions import Coordinator
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster


class KillTransactionCoordinator(KilledBroker):
    name = "kill_transaction_coordinator"
    summary = "SIGKILL the broker that coordinates an open transaction of the job"
    target = "the coordinator of an open transaction"
    part = "transaction coordinator"
    of_traits = frozenset({Trait.KAFKA_TRANSACTIONS})

    def find(self, run: RunContext) -> dict[str, Any] | None:
        with Coordinator(run.testbed.direct_kafka) as coordinator:
            ids = run.wait_for("an open transaction", lambda: coordinator.ongoing(f"{run.job.name}."), AIM_S)
        name = ids[0].transactional_id
        broker = Cluster(run.testbed.direct_kafka).coordinator("transaction", name)
        return None if broker is None else {"broker": broker, "of": name}

    def holder(self, testbed: Testbed, target: dict[str, Any]) -> int | None:
        return Cluster(testbed.direct_kafka).coordinator("transaction", target["of"])
