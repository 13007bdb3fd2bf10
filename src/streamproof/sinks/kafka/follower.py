"""A topic that is read while it is written: each record once, in partitions that may become more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from streamproof.evidence import locations
from streamproof.evidence.locations import Found, Location
from streamproof.kafka.servers import librdkafka
from streamproof.testbed.kafka import Cluster

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

COUNT_S = 1.0
FETCH = 10_000
POLL_S = 0.01


class TopicFollower:
    """Reads beside the proxies, what is committed only. ``reader`` names the consumer; it commits nothing."""

    def __init__(self, bootstrap: str, topic: str, reader: str, location: Location) -> None:
        from confluent_kafka import Consumer

        self._cluster, self._topic, self._location = Cluster(bootstrap), topic, location
        settings = {**librdkafka(bootstrap), "group.id": reader, "isolation.level": "read_committed", "log_level": 2}
        self._consumer: Consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        self._count, self._counted_at = 0, -COUNT_S

    def identities(self) -> Iterator[Found]:
        """Of the records that became visible since the last call."""
        return (identity for identity, _, _ in self.records())

    def records(self) -> Iterator[tuple[Found, int, int]]:
        """The same with partition and offset. Raises TestbedError while Kafka does not answer."""
        self._assign()
        while messages := self._consumer.consume(FETCH, timeout=POLL_S):
            for message in messages:
                if message.error() is None:
                    yield self._identity(message), int(message.partition() or 0), int(message.offset() or 0)

    def _assign(self) -> None:
        from confluent_kafka import TopicPartition

        if (now := time.monotonic()) < self._counted_at + COUNT_S:
            return
        count, self._counted_at = self._cluster.partitions(self._topic), now
        if count > self._count:
            self._consumer.incremental_assign([TopicPartition(self._topic, number, 0) for number in range(self._count, count)])
            self._count = count

    def _identity(self, message: Message) -> Found:
        headers: Any = message.headers() or ()
        header = next((value for name, value in headers if name == self._location.header), None)
        return locations.decode(self._location, _bytes(message.key()), _bytes(message.value()), header)

    def close(self) -> None:
        self._consumer.close()


def _bytes(read: str | bytes | None) -> bytes | None:
    return read.encode() if isinstance(read, str) else read
