"""``late_records``: some records reach the topic after records that were made later than they.

The model: a device that was without a network, one of two data centres that catches up. A record keeps its key and the time of its event,
and comes behind newer ones. A pipeline that passes records on owes it like any other, once; one that closes windows by a watermark may drop
it, and must then say how many it dropped. That it is late is the source's doing, and nobody is blamed for it.

The generator holds back a share of each chunk and sends it two chunks later.

Evidence: read from the broker, so many records of the input topic come behind others of their producer and partition that have a higher
sequence; and the job committed them.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from streamproof.evidence import locations
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.locations import Location
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.jobs.failpoint import Site
from streamproof.kafka.servers import librdkafka
from streamproof.load.gate import Orders
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster

ORDER = "late_share"
SEND_S = 90.0
READ_S = 10.0


class LateRecordsParameters(Parameters):
    share: float = Field(0.2, ge=0.01, le=0.5, description="The share of the records that are sent late")


class LateRecords(Unconditional):
    name = "late_records"
    summary = "Send some records after others that were made later"
    target = "the source"
    sites: frozenset[Site] = frozenset()
    parameters_model = LateRecordsParameters

    def batches(self, parameters: LateRecordsParameters) -> int:
        """Two lie ahead, sent before; one is what those that are held back wait for; a half is measured, a half to spare."""
        return 4

    def aim(self, run: RunContext, parameters: LateRecordsParameters) -> dict[str, Any]:
        ends = Cluster(run.testbed.direct_kafka).end_offsets(run.job.input_topic)
        return {"role": self.target, "before": {str(number): end for number, end in ends.items()}}

    def inject(self, run: RunContext, parameters: LateRecordsParameters, target: dict[str, Any]) -> None:
        orders, before = Orders(run.folder), {int(number): end for number, end in target["before"].items()}
        orders.give(ORDER, parameters.share)
        target["wanted"] = max(1, int(run.job.batch_records * parameters.share / 2))
        run.wait_for(f"{target['wanted']} late records", lambda: late(run, before)[0] >= target["wanted"], SEND_S)
        orders.withdraw(ORDER)

    def evidence(self, run: RunContext, parameters: LateRecordsParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        count, ends = late(run, {int(number): end for number, end in target["before"].items()})
        read = run.eventually(
            lambda: all(run.progress.until().get(str(number), 0) >= end for number, end in ends.items()),
            SEND_S,
        )
        until = {number: run.progress.until().get(str(number), 0) for number in ends}
        return [
            EvidenceCheck("records came behind later ones", count >= target["wanted"], f"{count}, as read from the broker"),
            EvidenceCheck("the job committed them", read, f"up to {until} of {ends}"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        orders = Orders(folder)
        orders.withdraw(ORDER)
        return [
            EvidenceCheck("the source holds nothing back any more", ORDER not in orders.active(), f"orders: {orders.active() or 'none'}")
        ]


def _identity(location: Location, message: Any) -> tuple[int, int] | None:
    header = next((value for name, value in message.headers() or () if name == location.header), None)
    return locations.decode(location, message.key(), message.value(), header)


def late(run: RunContext, begin: dict[int, int]) -> tuple[int, dict[int, int]]:
    """How many records of the input topic come behind one of their producer and partition with a higher sequence, from ``begin`` to the
    ends that are returned with it."""
    from confluent_kafka import Consumer, TopicPartition

    ends = Cluster(run.testbed.direct_kafka).end_offsets(run.job.input_topic)
    consumer = Consumer({**librdkafka(run.testbed.direct_kafka), "group.id": f"sp-{run.folder.name}-late", "enable.auto.commit": False})
    left = {number: end for number, end in ends.items() if end > begin.get(number, 0)}
    consumer.assign([TopicPartition(run.job.input_topic, number, begin.get(number, 0)) for number in left])
    newest: dict[tuple[int, int], int] = {}
    count = 0
    try:
        while left and (message := consumer.poll(READ_S)) is not None:
            found = None if message.error() else _identity(run.job.location_read, message)
            if message.error() is None and int(message.offset() or 0) >= left.get(int(message.partition() or 0), 0) - 1:
                left.pop(int(message.partition() or 0), None)
            if found is not None:
                producer, sequence = found
                at = (producer, int(message.partition() or 0))
                count += sequence < newest.get(at, -1)
                newest[at] = max(newest.get(at, -1), sequence)
    finally:
        consumer.close()
    return count, ends
