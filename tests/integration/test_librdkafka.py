"""The producer on librdkafka, against a real broker: what is handed over arrives as it was, and what does not arrive is said."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

from streamproof.kafka.librdkafka import DeliveryFailed, KafkaFailed, TransactionalProducer
from streamproof.kafka.transactions import Coordinator
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import wait_until

WAIT_S = 20.0
HEADERS = [("streamproof", b"1.7.0"), ("nul", b"a\0b")]
Headers = list[tuple[str, bytes]]


def producer(testbed: Testbed, name: str | None = None, **settings: str | int) -> TransactionalProducer:
    made = TransactionalProducer(
        {
            "bootstrap.servers": testbed.driver_kafka,
            "transactional.id": name or f"test.{uuid.uuid4().hex}",
            "log_level": 0,
            "partitioner": "murmur2_random",
            **settings,
        }
    )
    made.connect("__transaction_state", WAIT_S)
    made.init_transactions(WAIT_S)
    return made


def read(testbed: Testbed, topic: str, *, settled: bool = True) -> list[Any]:
    """Every committed record of a topic of two partitions; with ``settled``, once no transaction is open.

    A commit is answered as soon as the coordinator has noted it: its markers reach the partitions a moment later.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    if settled:
        cluster = Cluster(testbed.direct_kafka)
        wait_until("the markers", lambda: cluster.end_offsets(topic, committed=True) == cluster.end_offsets(topic), WAIT_S)
    options = {"bootstrap.servers": testbed.direct_kafka, "group.id": "read", "isolation.level": "read_committed"}
    consumer = Consumer({**options, "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    found, ended = [], set()
    try:
        while len(ended) < 2:
            message = consumer.poll(10)
            assert message is not None, "no answer within 10 s"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("headers", [HEADERS, []], ids=["with headers", "without headers"])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
def test_keys_values_nulls_and_headers_arrive_as_they_were(testbed: Testbed, topic: str, headers: Headers, kind: pa.DataType) -> None:
    keys = [b"", None, b"k2", b"k3", b"\0\xff", b"k5"]
    values = [b"v0", b"v1", None, b"", b"v\0w", b"v" * 100_000]
    with producer(testbed) as made:
        made.begin()
        # Slices: an array of Arrow need not begin where its buffers do.
        made.produce(topic, pa.array([b"no", *keys], kind)[1:], pa.array([b"no", *values], kind)[1:], headers, WAIT_S)
        made.produce(topic, pa.array([], kind), pa.array([], kind), headers, WAIT_S)
        made.commit(WAIT_S)
    found = read(testbed, topic)
    assert sorted((repr(message.key()), repr(message.value())) for message in found) == sorted(
        (repr(key), repr(value)) for key, value in zip(keys, values, strict=True)
    )
    assert all((message.headers() or []) == headers for message in found)


def test_a_key_goes_to_the_partition_that_kafkas_own_client_chooses(testbed: Testbed, topic: str) -> None:
    from confluent_kafka import Producer

    keys = [b"k%d" % number for number in range(50)]
    chosen: dict[bytes, int] = {}
    theirs: Producer = Producer({"bootstrap.servers": testbed.direct_kafka, "partitioner": "murmur2_random"})
    for key in keys:
        theirs.produce(topic, b"theirs", key, on_delivery=lambda _, message: chosen.update({message.key(): message.partition()}))
    assert theirs.flush(WAIT_S) == 0
    with producer(testbed) as made:
        made.begin()
        made.produce(topic, pa.array(keys, pa.binary()), pa.array([b"ours"] * len(keys), pa.binary()), [], WAIT_S)
        made.commit(WAIT_S)
    ours = {message.key(): message.partition() for message in read(testbed, topic) if message.value() == b"ours"}
    assert ours == chosen


@pytest.mark.parametrize("headers", [HEADERS, []], ids=["with headers", "without headers"])
def test_more_records_than_the_queue_holds_all_arrive_once(testbed: Testbed, topic: str, headers: Headers) -> None:
    values = [b"%d" % number for number in range(5000)]
    with producer(testbed, **{"queue.buffering.max.messages": 100}) as made:
        made.begin()
        made.produce(topic, pa.nulls(5000, pa.binary()), pa.array(values, pa.binary()), headers, WAIT_S)
        made.commit(WAIT_S)
    assert sorted(message.value() for message in read(testbed, topic)) == sorted(values)


def test_what_is_flushed_is_prepared_and_outlives_its_producer(testbed: Testbed, topic: str) -> None:
    with producer(testbed) as made:
        made.begin()
        made.produce(topic, pa.nulls(10, pa.binary()), pa.array([b"v"] * 10, pa.binary()), HEADERS, WAIT_S)
        made.flush(WAIT_S)
    assert read(testbed, topic, settled=False) == []
    with Coordinator(testbed.driver_kafka) as coordinator:
        coordinator.commit(coordinator.describe([made.name]))
    assert len(read(testbed, topic)) == 10


@pytest.mark.parametrize("headers", [HEADERS, []], ids=["with headers", "without headers"])
def test_a_record_that_the_client_refuses_is_an_error(testbed: Testbed, topic: str, headers: Headers) -> None:
    with producer(testbed, **{"message.max.bytes": 1000}) as made:
        made.begin()
        with pytest.raises(KafkaFailed, match=r"refused: .*large"):
            made.produce(topic, pa.nulls(3, pa.binary()), pa.array([b"v", b"v" * 2000, b"v"], pa.binary()), headers, WAIT_S)
        made.abort(WAIT_S)
    assert read(testbed, topic) == []


def test_a_record_that_the_broker_refuses_is_never_prepared(testbed: Testbed, cluster: Cluster) -> None:
    topic = f"test-{uuid.uuid4().hex[:8]}"
    cluster.create_topics({topic: 1}, **{"max.message.bytes": "500"})
    try:
        with producer(testbed) as made:
            made.begin()
            made.produce(topic, pa.nulls(2, pa.binary()), pa.array([b"v", b"v" * 2000], pa.binary()), [], WAIT_S)
            with pytest.raises(DeliveryFailed):
                made.flush(WAIT_S)
            with pytest.raises(KafkaFailed):
                made.commit(1)
            made.abort(WAIT_S)
    finally:
        cluster.delete_topics([topic])


def test_records_for_a_broker_that_does_not_answer_are_not_prepared(testbed: Testbed, topic: str) -> None:
    made = producer(testbed)
    try:
        made.begin()
        testbed.proxies.add("kafka-driver", "silence", "timeout", "downstream", {"timeout": 0})
        made.produce(topic, pa.nulls(10, pa.binary()), pa.array([b"v"] * 10, pa.binary()), [], WAIT_S)
        with pytest.raises(DeliveryFailed, match="10 of 10 records were not accepted"):
            made.flush(1)
    finally:
        made.close()
        testbed.proxies.reset("kafka-driver")


def test_an_aborted_transaction_leaves_nothing_and_the_next_one_is_whole(testbed: Testbed, topic: str) -> None:
    with producer(testbed) as made:
        made.begin()
        made.produce(topic, pa.nulls(10, pa.binary()), pa.array([b"aborted"] * 10, pa.binary()), HEADERS, WAIT_S)
        made.abort(WAIT_S)
        made.begin()
        made.produce(topic, pa.nulls(10, pa.binary()), pa.array([b"kept"] * 10, pa.binary()), HEADERS, WAIT_S)
        made.commit(WAIT_S)
    assert {message.value() for message in read(testbed, topic)} == {b"kept"}


def test_offsets_become_visible_with_the_commit_only(testbed: Testbed, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    group = f"test-{uuid.uuid4().hex[:8]}"
    reader: Consumer = Consumer({"bootstrap.servers": testbed.direct_kafka, "group.id": group})

    def committed() -> int:
        return int(reader.committed([TopicPartition(topic, 1)], timeout=WAIT_S)[0].offset)

    try:
        with producer(testbed) as made:
            for end, kept in ((made.abort, False), (made.commit, True)):
                made.begin()
                made.produce(topic, pa.nulls(1, pa.binary()), pa.array([b"v"], pa.binary()), [], WAIT_S)
                made.flush(WAIT_S)
                made.send_offsets(group, {(topic, 1): 17}, WAIT_S)
                end(WAIT_S)
                assert committed() == (17 if kept else -1001)
    finally:
        reader.close()


def test_who_was_fenced_cannot_commit(testbed: Testbed, topic: str) -> None:
    name = f"test.{uuid.uuid4().hex}"
    with producer(testbed, name) as first:
        first.begin()
        first.produce(topic, pa.nulls(10, pa.binary()), pa.array([b"v"] * 10, pa.binary()), [], WAIT_S)
        first.flush(WAIT_S)
        with producer(testbed, name):
            pass
        with pytest.raises(KafkaFailed, match="commit"):
            first.commit(WAIT_S)
    assert read(testbed, topic) == []
