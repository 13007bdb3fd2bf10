"""How far a job has come, from the committed offsets of its consumer group, asked of Kafka beside the proxies.

What is committed between two looks counts as one micro-batch, stamped when it was seen, a moment after it was committed. It counts as begun
when the one before it was seen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from streamproof.engines.command.following import Commit
from streamproof.engines.command.job import CommandJob
from streamproof.kafka.servers import librdkafka
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError

if TYPE_CHECKING:
    from confluent_kafka import Consumer

COUNT_S = 1.0
ANSWER_S = 5.0
log = logging.getLogger("streamproof.engines.command.group")


class GroupOffsets:
    """Follows the offsets that a job's group commits of its input."""

    def __init__(self, job: CommandJob, bootstrap: str) -> None:
        from confluent_kafka import Consumer

        self.job, self.cluster = job, Cluster(bootstrap)
        settings = {**librdkafka(bootstrap), "group.id": job.consumer_group, "isolation.level": "read_committed", "log_level": 2}
        self.consumer: Consumer = Consumer({**settings, "enable.auto.commit": False})
        self._count, self._counted_at = 0, -COUNT_S  # how many partitions the input has, and when that was asked

    def close(self) -> None:
        self.consumer.close()

    def commits(self, committed: Mapping[int, int]) -> Iterator[Commit]:
        """While Kafka does not answer nothing is known."""
        from confluent_kafka import KafkaException, TopicPartition

        topic = self.job.input_topic
        try:
            if (now := time.monotonic()) >= self._counted_at + COUNT_S:
                self._count, self._counted_at = self.cluster.partitions(topic), now
            answered = self.consumer.committed([TopicPartition(topic, number) for number in range(self._count)], timeout=ANSWER_S)
        except (KafkaException, TestbedError) as error:
            log.debug("the group's offsets are not known: %s", error)
            return
        until = {answer.partition: answer.offset for answer in answered if answer.error is None and answer.offset >= 0}
        at = datetime.now(UTC)
        if any(offset > committed.get(partition, 0) for partition, offset in until.items()):
            try:
                until = until if self.through(until) else self._but_the_last(until)
            except TestbedError as error:
                log.debug("how far the job is through is not known: %s", error)
                return
        yield Commit(until, at)

    def through(self, until: Mapping[int, int]) -> bool:
        """Whether what was read up to there is delivered, as far as the job delivers it. While it is not, the last record of each partition
        does not count, so that the job is not told to end. Raises TestbedError."""
        return True

    def _but_the_last(self, until: Mapping[int, int]) -> dict[int, int]:
        ends = self.cluster.end_offsets(self.job.input_topic)
        return {partition: min(offset, ends.get(partition, offset) - 1) for partition, offset in until.items()}


def why_nothing(job: CommandJob, bootstrap: str) -> str:
    """What to do about a group that has committed nothing."""
    others = [name for name in Cluster(bootstrap).groups_on(job.input_topic) if name != job.consumer_group]
    if others:
        return (
            f"the group {', '.join(others)} commits offsets of the input: have the job use the group {{group}}, "
            "or name its own, `progress: {group: …}`"
        )
    return "have it read {input_topic} and commit its offsets as the group {group}; for Spark set `progress: {spark_checkpoint: …}`"
