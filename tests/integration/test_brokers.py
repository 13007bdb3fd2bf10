"""A Kafka of three brokers: made from one and back, everything three times there, and transactions that outlive their coordinator."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from streamproof.experiment.model import Experiment
from streamproof.kafka.librdkafka import KafkaFailed, TransactionalProducer
from streamproof.kafka.transactions import Coordinator
from streamproof.run import lock, stages
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import command_line, marked, remembered, wait_until
from tests.integration.conftest import Prepare

BROKERS = ["kafka-1", "kafka-2", "kafka-3"]


@pytest.fixture(scope="module")
def three(testbed: Testbed) -> Iterator[Testbed]:
    """The testbed with three brokers; with one again afterwards, as the other tests know it."""
    said: list[str] = []
    yield embedded.up(said.append, brokers=3)
    assert said[0] == "kafka is made anew with 3 brokers, it had 1; what it held is gone"
    assert embedded.up(brokers=1) == testbed
    assert set(testbed.roles) == set(embedded.status())
    assert not [process for process in marked() if "kafka-2.properties" in " ".join(command_line(process))]


def test_each_broker_and_each_proxy_is_up(three: Testbed) -> None:
    assert [role for role in embedded.status() if role.startswith("kafka")] == BROKERS
    assert set(embedded.status().values()) == {"up"}
    assert embedded.up() == three, "asked for no number, it stays as it is"
    assert {name for name in three.links if name != "postgres"} == {f"{b}-{who}" for b in BROKERS for who in ("driver", "executors")}
    assert all(three.proxies.toxics(name) == {} for name in three.links)


def test_everything_is_there_three_times(three: Testbed, prepare: Prepare) -> None:
    cluster = Cluster(three.direct_kafka)
    cluster.create_topics({"thrice": 3})
    with Coordinator(three.direct_kafka) as coordinator:
        coordinator.abort(coordinator.ongoing(prepare("thrice")))
    topics = cluster._admin.list_topics(timeout=10).topics
    assert {"thrice", "__transaction_state"} <= set(topics)
    assert {len(found.replicas) for topic in topics.values() for found in topic.partitions.values()} == {3}
    wait_until("all to be in sync", lambda: cluster.out_of_sync() == [], 20)


def test_leaders_move_when_they_are_told_to(three: Testbed) -> None:
    cluster = Cluster(three.direct_kafka)
    cluster.create_topics({"moves": 3})
    before, wanted = cluster.leaders("moves"), cluster.move_leaders("moves")
    wait_until("the leaders to have moved", lambda: cluster.leaders("moves") == wanted, 20)
    assert all(wanted[number] != broker for number, broker in before.items())


@contextlib.contextmanager
def _records(bootstrap: str, topic: str, partitions: int) -> Iterator[None]:
    """Meanwhile each partition gets some hundred records a second, and none of them is waited for."""
    over = threading.Event()

    def send() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "acks": 1, "topic.metadata.refresh.interval.ms": 200, "log_level": 0})
        while not over.wait(0.01):
            for number in range(7 * partitions):
                with contextlib.suppress(BufferError):
                    producer.produce(topic, b"x" * 100, partition=number % partitions)
            producer.poll(0)
        producer.purge()

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def test_the_ends_can_be_read_while_a_leader_dies_and_another_takes_over(three: Testbed) -> None:
    """The new leader is announced before it knows the ends, and says so: OFFSET_NOT_AVAILABLE, UNKNOWN_LEADER_EPOCH."""
    Cluster(three.direct_kafka).create_topics({"watched": 3})
    dead = Cluster(three.direct_kafka).leaders("watched")[0]
    survivors = ",".join(f"127.0.0.1:{ports.direct}" for number, ports in enumerate(three.kafka, 1) if number != dead)
    watching, asking = Cluster(survivors), Cluster(survivors)
    ends = {committed: watching.end_offsets("watched", committed=committed) for committed in (False, True)}
    asking.leaders("watched")  # it is connected, but has asked no leader yet: nothing waits at the one that dies
    with _records(three.direct_kafka, "watched", 3):
        wait_until("records", lambda: min(watching.end_offsets("watched").values()) > 100, 30)
        handle = remembered(f"kafka-{dead}", embedded.folder())
        assert handle is not None
        os.kill(handle.pid, signal.SIGKILL)
        wait_until("other leaders", lambda: not {dead, -1} & set(watching.leaders("watched").values()), 60, poll_s=0.005)
        until, answers = time.monotonic() + 2, 0
        while time.monotonic() < until or answers < 20:
            for committed, before in ends.items():
                now = asking.end_offsets("watched", committed=committed)
                assert all(now[number] >= end for number, end in before.items()), "no end goes back"
                ends[committed], answers = now, answers + 1
    assert embedded.up() == three
    wait_until("all to be in sync", lambda: watching.out_of_sync() == [], 60)


def test_a_prepared_transaction_is_committed_though_its_coordinator_died(three: Testbed, prepare: Prepare) -> None:
    cluster = Cluster(three.direct_kafka)
    cluster.create_topics({"outlives": 2})
    name = prepare("outlives", records=10)
    with Coordinator(three.direct_kafka) as coordinator:
        prepared = coordinator.describe([name])
        broker = cluster.coordinator("transaction", name)
        assert broker is not None
        handle = remembered(f"kafka-{broker}", embedded.folder())
        assert handle is not None
        os.kill(handle.pid, signal.SIGKILL)
        coordinator.commit(prepared)  # it knows the coordinator that was
        assert coordinator.ongoing(name) == []
    assert cluster.coordinator("transaction", name) not in (None, broker)
    wait_until("its records to be visible", lambda: sum(cluster.end_offsets("outlives", committed=True).values()) >= 10, 20)
    assert embedded.status()[f"kafka-{broker}"] == "down"
    assert embedded.up() == three
    wait_until("all to be in sync", lambda: cluster.out_of_sync() == [], 60)


def test_offsets_whose_coordinator_died_are_sent_or_refused_in_time_and_a_new_producer_sends_them(three: Testbed) -> None:
    """librdkafka 2.16 waits for ever here: a producer that has sent offsets before asks the coordinator that it knows."""
    cluster = Cluster(three.direct_kafka)
    cluster.create_topics({"offsets": 1})
    settings = {"bootstrap.servers": three.executors_kafka, "transactional.id": "offsets", "topic.metadata.refresh.interval.ms": 500}
    key, value = pa.array(["k"]), pa.array(["v"])

    def transaction(producer: TransactionalProducer, until: int) -> None:
        producer.begin()
        producer.produce("offsets", key, value, [], 20)
        producer.flush(20)
        producer.send_offsets("readers", {("offsets", 0): until}, 5)
        producer.commit(20)

    with TransactionalProducer(settings) as producer:
        producer.init_transactions(30)
        transaction(producer, 1)
        broker = cluster.coordinator("group", "readers")
        assert broker is not None
        handle = remembered(f"kafka-{broker}", embedded.folder())
        assert handle is not None
        os.kill(handle.pid, signal.SIGKILL)
        wait_until("another coordinator", lambda: cluster.coordinator("group", "readers") not in (None, broker), 30)
        begun = time.monotonic()
        with contextlib.suppress(KafkaFailed):
            transaction(producer, 2)
        assert time.monotonic() - begun < 60
    with TransactionalProducer(settings) as producer:
        producer.init_transactions(30)
        transaction(producer, 3)
    assert embedded.up() == three
    wait_until("all to be in sync", lambda: cluster.out_of_sync() == [], 60)
    options = {"bootstrap.servers": three.direct_kafka, "group.id": "readers", "isolation.level": "read_committed"}
    reader: Consumer = Consumer(options)
    try:
        assert reader.committed([TopicPartition("offsets", 0)], timeout=20)[0].offset == 3
    finally:
        reader.close()


def test_a_testbed_that_another_run_holds_is_not_made_anew(three: Testbed, tmp_path_factory: pytest.TempPathFactory) -> None:
    lock.acquire("somebody-elses-run", tmp_path_factory.mktemp("run"), os.getpid())
    try:
        folder = stages.create(Experiment(strategy="checkpoint", seed=1), owner=os.getpid())
        with pytest.raises(lock.TestbedBusy, match="somebody-elses-run"):
            stages.perform("prepare", folder)
        assert embedded.current() == three
    finally:
        lock.release("somebody-elses-run")
