"""Topics whose names a job has fixed: on the testbed's own Kafka what is left of them goes, on another's they are nobody's to touch."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from streamproof.run import named_topics
from streamproof.testbed import external
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.external import External
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError


@pytest.fixture
def topic(testbed: Testbed) -> Iterator[str]:
    """A topic that somebody has made, with a record."""
    name, cluster = f"orders-{uuid.uuid4().hex[:8]}", Cluster(testbed.direct_kafka)
    cluster.create_topics({name: 2})
    producer = Producer({"bootstrap.servers": testbed.direct_kafka})
    producer.produce(name, b"somebody's")
    assert producer.flush(20) == 0
    yield name
    cluster.delete_topics([name])


def test_what_is_left_of_a_topic_goes_from_the_testbeds_own_kafka(topic: str, testbed: Testbed) -> None:
    cluster, place = Cluster(testbed.direct_kafka), TopicPartition(topic, 0)
    settings = {"bootstrap.servers": testbed.direct_kafka, "group.id": topic, "enable.auto.commit": False}
    with closing(Consumer(settings)) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        assert consumer.committed([place], timeout=20)[0].offset == 1
        named_topics.make_way([topic, "no-such-topic"], testbed)
        assert cluster.partitions(topic) == 0
        cluster.create_topics({topic: 2})
        assert consumer.committed([place], timeout=20)[0].offset < 0, "what a group has committed goes with its topic"


def test_a_topic_that_is_on_a_kafka_elsewhere_is_not_touched(topic: str, testbed: Testbed) -> None:
    addresses = {"direct": testbed.direct_kafka, "driver": testbed.driver_kafka, "executors": testbed.executors_kafka}
    elsewhere = external.outside(testbed, External.model_validate({"kafka": addresses}), "a-run")
    with pytest.raises(TestbedError, match=f"the topic {topic} exists at 127.0.0.1:.*Name another in `reads` and `delivers`"):
        named_topics.make_way(["no-such-topic", topic], elsewhere)
    assert sum(Cluster(testbed.direct_kafka).end_offsets(topic).values()) == 1
