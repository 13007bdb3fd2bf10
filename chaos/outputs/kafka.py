"""The output topic, and its drain: everything that was delivered, as a read-committed reader sees it, to the end.

The end is each partition's high watermark *and* its last stable offset: while the second is behind the first, a transaction is open
and part of the output is not decided. A drain that cannot reach the end says so; LOST is then not known.
"""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, Any

from chaos.outputs.delivered import Delivered
from delivery import history, identity
from delivery.folder import EvidenceError, RunFolder
from delivery.recovery import Stamps
from pipelines.job import Job
from testbed.embedded import Testbed
from testbed.kafka import Cluster

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

FETCH = 10_000
FILE_RECORDS = 1_000_000
STABLE_S = 75.0
ORIGIN_HEADER = "streamproof"
_ORIGIN = re.compile(rb"(\d{1,9})\.(\d{1,18})\.(\d{1,9})")  # each fits its column
log = logging.getLogger("chaos.drain")


def drain(folder: RunFolder, bootstrap: str, topic: str, timeout_s: float) -> dict[str, Any]:
    """Write ``delivered/`` and ``delivered/drain.json``; returns the latter.

    Repeating it starts over; what an earlier one found is kept until all of the new is there. Raises EvidenceError when there is no
    such topic.
    """
    from confluent_kafka import Consumer, TopicPartition

    begun = time.monotonic()
    cluster = Cluster(bootstrap)
    ends, reason = _stable_end(cluster, topic, begun + min(timeout_s, STABLE_S))
    consumer: Consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"drain-{folder.name}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "fetch.queue.backoff.ms": 10,
            "log_level": 3,
        }
    )
    delivered = Delivered(folder)
    rows = _Rows(delivered)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        reached = _read(consumer, ends, rows, begun + timeout_s)
    finally:
        consumer.close()
    rows.save()
    missing = sorted(set(ends) - reached)
    if missing and reason is None:
        reason = f"partitions {missing} were not read to their end within {timeout_s:.0f} s"
    return delivered.settle(reason, ends, Stamps.WRITTEN)


def _stable_end(cluster: Cluster, topic: str, deadline: float) -> tuple[dict[int, int], str | None]:
    """The output's end, once no open transaction lies before it; else the end that is stable, and why it is not the last.

    Raises EvidenceError when there is no such topic: what is not there cannot be read to its end.
    """
    while True:
        stable = cluster.end_offsets(topic, committed=True)
        last = cluster.end_offsets(topic)
        if not stable or not last:
            raise EvidenceError(
                f"kafka at {cluster.bootstrap} has no topic {topic}: the run was not prepared, or was restored already. "
                "What was drained before is kept."
            )
        behind = sorted(partition for partition, end in last.items() if stable[partition] < end)
        if not behind:
            return last, None
        if time.monotonic() > deadline:
            return stable, f"an open transaction holds back partitions {behind}"
        time.sleep(0.1)


def _read(consumer: Consumer, ends: dict[int, int], rows: _Rows, deadline: float) -> set[int]:
    """Read until every partition has shown its end. Returns the partitions that did."""
    from confluent_kafka import KafkaError, KafkaException

    reached = {partition for partition, end in ends.items() if end == 0}
    while reached != set(ends) and time.monotonic() < deadline:
        for message in consumer.consume(FETCH, timeout=0.1):
            error = message.error()
            if error is None:
                rows.add(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                partition, offset = int(message.partition() or 0), int(message.offset() or 0)
                if offset >= ends[partition]:
                    reached.add(partition)
            else:
                raise KafkaException(error)
    return reached


class _Rows:
    """Delivered rows on their way to Parquet."""

    def __init__(self, delivered: Delivered) -> None:
        self._delivered = delivered
        self._columns: dict[str, list[Any]] = {name: [] for name in history.DELIVERED.names}

    def add(self, message: Message) -> None:
        found = identity.decode(message.value())
        start, batch, attempt = origin(message.headers())
        row = (
            found.producer if found else None,
            found.sequence if found else None,
            found.crc if found and found.intact else None,
            message.partition(),
            message.offset(),
            batch,
            attempt,
            start,
            message.timestamp()[1],
        )
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)
        if len(self._columns["offset"]) == FILE_RECORDS:
            self.save()

    def save(self) -> None:
        self._delivered.write(self._columns)
        self._columns = {name: [] for name in self._columns}


def origin(headers: Any) -> tuple[int | None, int | None, int | None]:
    """Driver start, batch and attempt from the header that a strategy may set: ``start.batch.attempt``. Another's header says nothing."""
    for name, value in headers or ():
        if name == ORIGIN_HEADER and value is not None and (found := _ORIGIN.fullmatch(value)) is not None:
            start, batch, attempt = found.groups()
            return int(start), int(batch), int(attempt)
    return None, None, None


class KafkaReader:
    """A read-committed consumer of the output topic; it counts records by the batch that their header names."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._counts: dict[int, int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{topic}-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
                "log_level": 2,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def visible(self) -> dict[int, int]:
        while messages := self._consumer.consume(FETCH, timeout=0.01):
            for message in messages:
                batch = None if message.error() else origin(message.headers())[1]
                if batch is not None:
                    self._counts[batch] = self._counts.get(batch, 0) + 1
        return self._counts

    def close(self) -> None:
        self._consumer.close()


class KafkaOutput:
    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        Cluster(testbed.direct_kafka).create_topics({job.output_topic: partitions})

    def drain(self, folder: RunFolder, job: Job, testbed: Testbed, timeout_s: float) -> dict[str, Any]:
        return drain(folder, testbed.direct_kafka, job.output_topic, timeout_s)

    def reader(self, job: Job, testbed: Testbed) -> KafkaReader:
        partitions = Cluster(testbed.direct_kafka).partitions(job.output_topic)
        return KafkaReader(testbed.direct_kafka, job.output_topic, partitions)

    def delete(self, job: Job, testbed: Testbed) -> None:
        Cluster(testbed.direct_kafka).delete_topics([job.output_topic])
