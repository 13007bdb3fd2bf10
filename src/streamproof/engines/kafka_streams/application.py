"""How far an application of Kafka Streams has come, which may pass records between its parts over topics of its own.

Such a topic (``…-repartition``) is input of the same application. What was read of the input topic is through only once nothing is left
there: until then the last record of each partition does not count.

Checked against: Kafka Streams 4.3 (internal topics are named ``<application.id>-<name>-repartition`` and ``-changelog``; with exactly-once
what is written there and the offsets of what it was made from are committed in one transaction).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from streamproof.engines.command.group import ANSWER_S, GroupOffsets
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError

BETWEEN, CHANGES = "-repartition", "-changelog"


def internal_topics(cluster: Cluster, application: str) -> list[str]:
    """The topics that an application made for itself. Raises TestbedError."""
    return [name for name in cluster.topics() if name.startswith(f"{application}-") and name.endswith((BETWEEN, CHANGES))]


class ApplicationOffsets(GroupOffsets):
    @cached_property
    def _topics_between(self) -> list[str]:
        """Asked once: an application makes its topics before it reads anything. Raises TestbedError."""
        return [name for name in internal_topics(self.cluster, self.job.consumer_group) if name.endswith(BETWEEN)]

    def through(self, until: Mapping[int, int]) -> bool:
        return not self._between()

    def _between(self) -> bool:
        """Whether something is left between the parts of the application. Raises TestbedError."""
        from confluent_kafka import KafkaException, TopicPartition

        for topic in self._topics_between:
            ends = self.cluster.end_offsets(topic)
            try:
                answered = self.consumer.committed([TopicPartition(topic, number) for number in ends], timeout=ANSWER_S)
            except KafkaException as error:
                raise TestbedError(f"{topic}: its offsets are not known: {error}") from error
            if any(answer.offset < ends[answer.partition] for answer in answered if ends[answer.partition]):
                return True
        return False
