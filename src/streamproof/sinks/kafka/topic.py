"""The output topic: made, read while the job runs, drained and deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.second_reading import Stretch
from streamproof.jobs.job import Job
from streamproof.kafka.servers import librdkafka
from streamproof.sinks import origin
from streamproof.sinks.kafka.follower import TopicFollower
from streamproof.sinks.sink import Row
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster

FETCH = 10_000
TIMES = {"message.timestamp.type": "LogAppendTime"}
"""A record's time is the broker's own: the job cannot set it."""
DRAIN = "streamproof.sinks.kafka.drain"  # imported when it is needed: nothing else is compiled
SECOND_READER = "streamproof.sinks.kafka.second_reader"  # imported when it is needed, with its client


class KafkaReader:
    """A read-committed consumer of the output topic; it counts records by the batch that their header names."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._counts: dict[int, int] = {}
        self._consumer = Consumer(
            {
                **librdkafka(bootstrap),
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
                batch = None if message.error() else origin.decode(message.headers())[1]
                if batch is not None:
                    self._counts[batch] = self._counts.get(batch, 0) + 1
        return self._counts

    def close(self) -> None:
        self._consumer.close()


class KafkaTopic:
    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        Cluster(testbed.direct_kafka).create_topics({job.output_topic: partitions}, **TIMES)

    def drain(self, folder: RunFolder, job: Job, testbed: Testbed, timeout_s: float) -> dict[str, Any]:
        drained: dict[str, Any] = import_module(DRAIN).drain(
            folder, testbed.direct_kafka, job.output_topic, timeout_s, job.location_delivered
        )
        return drained

    def end(self, job: Job, testbed: Testbed) -> Any:
        """The end of each partition, behind whatever lies there: also transactions that are open, and marks of those that ended."""
        ends = Cluster(testbed.direct_kafka).end_offsets(job.output_topic)
        if not ends:
            raise EvidenceError(f"there is no topic {job.output_topic}: the run was not prepared, or was restored already")
        return {str(partition): end for partition, end in sorted(ends.items())}

    def reader(self, job: Job, testbed: Testbed) -> KafkaReader:
        partitions = Cluster(testbed.direct_kafka).partitions(job.output_topic)
        return KafkaReader(testbed.direct_kafka, job.output_topic, partitions)

    def follower(self, job: Job, testbed: Testbed) -> TopicFollower:
        return TopicFollower(testbed.direct_kafka, job.output_topic, f"{job.name}-output-reader", job.location_delivered)

    def ends_again(self, job: Job, testbed: Testbed, timeout_s: float) -> dict[int, int]:
        ends: dict[int, int] = import_module(SECOND_READER).ends(testbed.direct_kafka, job.output_topic, timeout_s)
        return ends

    def rows(self, job: Job, testbed: Testbed, run: str, stretches: Sequence[Stretch], timeout_s: float) -> Iterator[Row]:
        header = job.location_delivered.header
        yield from import_module(SECOND_READER).rows(testbed.direct_kafka, job.output_topic, run, stretches, timeout_s, header)

    def load(self) -> None:
        import_module(DRAIN)

    def delete(self, job: Job, testbed: Testbed) -> None:
        Cluster(testbed.direct_kafka).delete_topics([job.output_topic])
