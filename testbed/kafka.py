"""Kafka as a component: one KRaft node (broker and controller) with two client listeners.

DIRECT is for whoever judges (the workload, the drain, the admin client). PIPELINE is for the system under test: the broker
advertises the *proxy's* address on it, so that clients which bootstrapped through Toxiproxy stay behind it after their first
metadata answer.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed import install, java, settings
from testbed.process import Handle, TestbedError, environment, listening, running, spawn, wait_until

READY_S = 60.0
REQUEST_S = 15.0
LEADER_S = 10.0
POLL_S = 0.05


@dataclass(frozen=True)
class KafkaPorts:
    direct: int
    pipeline: int
    controller: int
    proxy: int


def _configuration(ports: KafkaPorts, data: Path) -> str:
    options = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{ports.controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "DIRECT",
        "listeners": f"DIRECT://127.0.0.1:{ports.direct},PIPELINE://127.0.0.1:{ports.pipeline},CONTROLLER://127.0.0.1:{ports.controller}",
        "advertised.listeners": f"DIRECT://127.0.0.1:{ports.direct},PIPELINE://127.0.0.1:{ports.proxy}",
        "listener.security.protocol.map": "DIRECT:PLAINTEXT,PIPELINE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # A transaction whose owner vanished is noticed within a second of its timeout, not within ten.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        "log.segment.delete.delay.ms": 1000,
    }
    return "".join(f"{key}={value}\n" for key, value in options.items())


_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
"""


def start(folder: Path, ports: KafkaPorts) -> Handle:
    """Start the broker (formatting its storage the first time) and return once it accepts connections on both listeners."""
    if (old := running("kafka", folder)) is not None:
        return old
    data, configuration, logging = folder / "kafka-data", folder / "kafka.properties", folder / "kafka-log4j2.properties"
    folder.mkdir(parents=True, exist_ok=True)
    configuration.write_text(_configuration(ports, data))
    logging.write_text(_LOGGING)
    base = [str(install.java_executable()), "-cp", f"{settings.cache() / 'jars' / 'kafka'}/*", f"-Dlog4j2.configurationFile={logging}"]
    flags = [*java.QUICK_START, "-Xms256m", "-Xmx768m"]
    if not (data / "meta.properties").exists():
        shutil.rmtree(data, ignore_errors=True)
        command = [*base, *flags, "kafka.tools.StorageTool", "format", "-t", "c3RyZWFtcHJvb2ZfX19fXw", "-c", str(configuration)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=READY_S, cwd=folder, env=environment())
        if done.returncode != 0:
            raise TestbedError(f"kafka: its storage could not be formatted:\n{done.stdout}{done.stderr}")
    handle = spawn("kafka", [*base, *flags, *java.archive_flags("kafka"), "kafka.Kafka", str(configuration)], folder)
    wait_until("kafka: accept connections", lambda: ready(ports), READY_S, process=handle)
    return handle


def ready(ports: KafkaPorts) -> bool:
    return listening("127.0.0.1", ports.direct) and listening("127.0.0.1", ports.pipeline)


class Cluster:
    """What the judge asks of Kafka, over the direct listener. Every call is bounded by ``REQUEST_S`` and raises TestbedError."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2, "topic.metadata.refresh.interval.ms": 1000})

    def create_topics(self, topics: Mapping[str, int], **configuration: str) -> None:
        """Create topics (name to partition count) and wait until every partition has a leader."""
        from confluent_kafka.admin import NewTopic

        new = [NewTopic(name, count, replication_factor=1, config=dict(configuration)) for name, count in topics.items()]
        for name, future in self._admin.create_topics(new, request_timeout=REQUEST_S).items():
            self._settle(future, f"topic {name} could not be created")
        for name, count in topics.items():
            self.wait_for_partitions(name, count)

    def delete_topics(self, names: list[str]) -> None:
        """Delete those of the topics that exist."""
        present = [name for name in names if self.partitions(name) > 0]
        if not present:
            return
        for name, future in self._admin.delete_topics(present, request_timeout=REQUEST_S).items():
            self._settle(future, f"topic {name} could not be deleted")

    def partitions(self, topic: str) -> int:
        """How many partitions ``topic`` has, 0 when there is no such topic."""
        found = self._topic(topic)
        return 0 if found.error is not None else len(found.partitions)

    def _topic(self, topic: str) -> Any:
        from confluent_kafka import KafkaException

        try:
            return self._admin.list_topics(topic, timeout=REQUEST_S).topics[topic]
        except KafkaException as error:
            raise TestbedError(f"kafka at {self.bootstrap}: no answer about topic {topic} ({error.args[0].str()})") from error

    def wait_for_partitions(self, topic: str, count: int) -> None:
        def led() -> bool:
            found = self._topic(topic)
            return found.error is None and len(found.partitions) >= count and all(p.leader >= 0 for p in found.partitions.values())

        wait_until(f"topic {topic}: {count} partitions with a leader", led, REQUEST_S)

    def add_partitions(self, topic: str, count: int) -> None:
        """Grow ``topic`` to ``count`` partitions and wait until each has a leader."""
        from confluent_kafka.admin import NewPartitions

        for name, future in self._admin.create_partitions([NewPartitions(topic, count)], request_timeout=REQUEST_S).items():
            self._settle(future, f"topic {name} could not be grown to {count} partitions")
        self.wait_for_partitions(topic, count)

    def end_offsets(self, topic: str, *, committed: bool = False) -> dict[int, int]:
        """The end of each partition: its high watermark, or with ``committed`` its last stable offset (no open transaction below).

        A broker announces itself as a partition's leader a moment before it is one: it is asked again for up to ``LEADER_S``.
        """
        deadline = time.monotonic() + LEADER_S
        while True:
            try:
                return self._end_offsets(topic, committed)
            except _NotLeading:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)

    def _end_offsets(self, topic: str, committed: bool) -> dict[int, int]:
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(topic, OffsetSpec.latest(), committed)  # type: ignore[no-untyped-call]

    def _offsets(self, topic: str, which: Any, committed: bool = False) -> dict[int, int]:
        from confluent_kafka import IsolationLevel, TopicPartition

        wanted = {TopicPartition(topic, number): which for number in range(self.partitions(topic))}
        if not wanted:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        futures = self._admin.list_offsets(wanted, isolation_level=level, request_timeout=REQUEST_S)
        return {
            at.partition: int(self._settle(future, f"the offsets of {topic} could not be read").offset) for at, future in futures.items()
        }

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The first offset of each partition that is still there."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(topic, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records of each partition that lie before an offset. Raises TestbedError where there is no such offset."""
        from confluent_kafka import TopicPartition

        asked = [TopicPartition(topic, number, offset) for number, offset in before.items()]
        for at, future in self._admin.delete_records(asked, request_timeout=REQUEST_S).items():
            self._settle(future, f"records of {topic}/{at.partition} could not be deleted")

    def cluster_id(self) -> str:
        return str(self._settle(self._admin.describe_cluster(request_timeout=REQUEST_S), "no answer").cluster_id)

    def _settle(self, future: Any, what: str) -> Any:
        from confluent_kafka import KafkaException

        try:
            return future.result(timeout=REQUEST_S + 5)
        except (KafkaException, TimeoutError) as error:
            kind = _NotLeading if _is_not_leading(error) else TestbedError
            raise kind(f"kafka at {self.bootstrap}: {what}: {error}") from error


def fence(bootstrap: str, transactional_id: str) -> None:
    """Take a transactional id over: its open transaction is aborted, whoever held it is refused. Raises TestbedError."""
    from confluent_kafka import KafkaException, Producer

    producer: Producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 2})
    try:
        producer.init_transactions(REQUEST_S)
    except KafkaException as error:
        raise TestbedError(f"kafka at {bootstrap}: {transactional_id} could not be taken over: {error}") from error


class _NotLeading(TestbedError):
    """The broker that was asked does not lead the partition, or does not know it, yet."""


def _is_not_leading(error: Exception) -> bool:
    from confluent_kafka import KafkaError

    codes = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)
    found = error.args[0] if error.args else None
    return isinstance(found, KafkaError) and found.code() in codes


def wait_until_answering(bootstrap: str, timeout_s: float = READY_S) -> None:
    """Wait until the broker answers requests, which is later than accepting connections."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if admin.list_topics(timeout=2.0).brokers:
                return
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise TestbedError(f"kafka at {bootstrap}: no answer within {timeout_s:.0f} s ({error.args[0].str()})") from error
