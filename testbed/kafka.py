"""Kafka as a component: KRaft nodes, each broker and controller, with a client listener for each who talks to it.

DIRECT is for whoever judges (the workload, the drain, the admin client). DRIVER and EXECUTORS are for the system under test: on each the
broker advertises the address of a *proxy*, so that clients which bootstrapped through that proxy stay behind it after their first metadata
answer. Two listeners, because a broker advertises one address on each: so the driver can be cut off without the executors, and the
executors without the driver.

One broker is enough for most. Three replicate everything three times, offsets and transactions too, and go on when one of them dies.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from testbed import install, java, settings
from testbed.process import Handle, TestbedError, environment, listening, remembered, running, spawn, stop, wait_until

READY_S = 60.0
REQUEST_S = 15.0
LEADER_S = 10.0
POLL_S = 0.05
HEAP = ["-Xms256m", "-Xmx768m"]
SMALL_HEAP = ["-Xms128m", "-Xmx448m"]


@dataclass(frozen=True)
class KafkaPorts:
    direct: int
    driver: int
    executors: int
    controller: int
    driver_proxy: int
    executors_proxy: int


def roles(brokers: int) -> list[str]:
    """The roles of the brokers' processes, the first being that of broker 1."""
    return ["kafka"] if brokers == 1 else [f"kafka-{number}" for number in range(1, brokers + 1)]


def _configuration(brokers: Sequence[KafkaPorts], number: int, data: Path) -> str:
    """Of broker ``number``, counted from 1."""
    ports, replicas = brokers[number - 1], len(brokers)
    in_sync = replicas // 2 + 1
    options = {
        "process.roles": "broker,controller",
        "node.id": number,
        "controller.quorum.voters": ",".join(f"{node}@127.0.0.1:{each.controller}" for node, each in enumerate(brokers, 1)),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "DIRECT",
        "listeners": _listeners(DIRECT=ports.direct, DRIVER=ports.driver, EXECUTORS=ports.executors, CONTROLLER=ports.controller),
        "advertised.listeners": _listeners(DIRECT=ports.direct, DRIVER=ports.driver_proxy, EXECUTORS=ports.executors_proxy),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in ("DIRECT", "DRIVER", "EXECUTORS", "CONTROLLER")),
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": 0,
        # A transaction whose owner vanished is noticed within a second of its timeout, not within ten.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        "log.segment.delete.delay.ms": 1000,
    }
    if replicas > 1:  # after this time without a heartbeat the others take over what a broker led
        options |= {"broker.session.timeout.ms": 4000, "broker.heartbeat.interval.ms": 1000}
    return "".join(f"{key}={value}\n" for key, value in options.items())


def _listeners(**ports: int) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
"""


def start(folder: Path, brokers: Sequence[KafkaPorts]) -> list[Handle]:
    """Start the brokers that do not run, all at once, and return once each accepts connections on its listeners."""
    with ThreadPoolExecutor(len(brokers)) as pool:
        return list(pool.map(lambda number: _start(folder, brokers, number), range(1, len(brokers) + 1)))


def _start(folder: Path, brokers: Sequence[KafkaPorts], number: int) -> Handle:
    """Start broker ``number``, formatting its storage the first time."""
    role, ports = roles(len(brokers))[number - 1], brokers[number - 1]
    if (old := running(role, folder)) is not None:
        return old
    data, configuration, logging = folder / f"{role}-data", folder / f"{role}.properties", folder / f"{role}-log4j2.properties"
    folder.mkdir(parents=True, exist_ok=True)
    configuration.write_text(_configuration(brokers, number, data))
    logging.write_text(_LOGGING)
    base = [str(install.java_executable()), "-cp", f"{settings.cache() / 'jars' / 'kafka'}/*", f"-Dlog4j2.configurationFile={logging}"]
    flags = [*java.QUICK_START, *(HEAP if len(brokers) == 1 else SMALL_HEAP)]
    if not (data / "meta.properties").exists():
        shutil.rmtree(data, ignore_errors=True)
        command = [*base, *flags, "kafka.tools.StorageTool", "format", "-t", "c3RyZWFtcHJvb2ZfX19fXw", "-c", str(configuration)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=READY_S, cwd=folder, env=environment())
        if done.returncode != 0:
            raise TestbedError(f"{role}: its storage could not be formatted:\n{done.stdout}{done.stderr}")
    handle = spawn(role, [*base, *flags, *java.archive_flags("kafka"), "kafka.Kafka", str(configuration)], folder)
    wait_until(f"{role}: accept connections", lambda: ready(ports), READY_S, process=handle)
    return handle


def stop_all(folder: Path) -> None:
    """End every broker and delete what they held. Raises TestbedError when one survives."""
    files = list(folder.glob("kafka*.pid"))
    handles = [handle for file in files if (handle := remembered(file.stem, folder)) is not None]
    left = stop([process for handle in handles if (process := handle.process()) is not None], grace_s=0)
    if left:
        raise TestbedError(f"brokers do not end even by SIGKILL: {[process.pid for process in left]}")
    for file in files:
        shutil.rmtree(folder / f"{file.stem}-data", ignore_errors=True)
        file.unlink()


def ready(ports: KafkaPorts) -> bool:
    return all(listening("127.0.0.1", port) for port in (ports.direct, ports.driver, ports.executors))


class Cluster:
    """What the judge asks of Kafka, over the direct listener. Every call is bounded by ``REQUEST_S`` and raises TestbedError."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2, "topic.metadata.refresh.interval.ms": 1000})

    def create_topics(self, topics: Mapping[str, int], **configuration: str) -> None:
        """Create topics (name to partition count) and wait until every partition has a leader."""
        from confluent_kafka.admin import NewTopic

        # As many replicas as there are brokers: their default.
        new = [NewTopic(name, count, replication_factor=-1, config=dict(configuration)) for name, count in topics.items()]
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

    def topic_id(self, topic: str) -> str:
        """The id that a topic was made with; one that is made again under its name has another. Raises TestbedError without a topic."""
        from confluent_kafka import TopicCollection

        asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_S)
        return str(self._settle(asked[topic], f"no answer about topic {topic}").topic_id)

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

    def leaders(self, topic: str) -> dict[int, int]:
        """The broker that leads each partition, -1 where none does."""
        return {number: int(partition.leader) for number, partition in self._topic(topic).partitions.items()}

    def leader_addresses(self, topic: str) -> dict[int, str]:
        """The address of the broker that leads each partition; a partition that none leads is left out."""
        from confluent_kafka import KafkaException

        try:
            found = self._admin.list_topics(topic, timeout=REQUEST_S)
        except KafkaException as error:
            raise TestbedError(f"kafka at {self.bootstrap}: no answer about topic {topic} ({error.args[0].str()})") from error
        addresses = {number: f"{broker.host}:{broker.port}" for number, broker in found.brokers.items()}
        partitions = found.topics[topic].partitions.items()
        return {number: addresses[partition.leader] for number, partition in partitions if partition.leader in addresses}

    def in_sync(self, topic: str, partition: int) -> list[int]:
        """The brokers that have all of a partition."""
        return sorted(self._topic(topic).partitions[partition].isrs)

    def keep_on(self, topic: str, partition: int, brokers: Sequence[int]) -> None:
        """Have ``brokers`` hold a partition, the first of them as its preferred leader."""
        from kafka import TopicPartition

        with _asking(self.bootstrap) as admin:
            refused = admin.alter_partition_reassignments({TopicPartition(topic, partition): list(brokers)})
            if any(refused.values()):
                raise TestbedError(f"kafka at {self.bootstrap}: {topic}-{partition} could not be moved to {list(brokers)}: {refused}")

    def configure(self, topic: str, **options: str) -> None:
        """Set options of a topic, those with a dot in their name written with an underscore."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        set_to = AlterConfigOpType.SET
        entries = [ConfigEntry(name.replace("_", "."), value, incremental_operation=set_to) for name, value in options.items()]
        asked = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for future in self._admin.incremental_alter_configs([asked], request_timeout=REQUEST_S).values():
            self._settle(future, f"topic {topic} could not be configured")

    def elect_unclean(self, topic: str, partition: int) -> None:
        """Have a broker lead a partition that has not all of it, because none that has all is there."""
        from kafka.errors import KafkaError

        try:
            with _asking(self.bootstrap) as admin:
                admin.elect_leaders(1, {topic: [partition]}, raise_errors=False)
        except KafkaError as error:
            raise TestbedError(f"kafka at {self.bootstrap}: no leader could be elected for {topic}-{partition}: {error}") from error

    def out_of_sync(self) -> list[str]:
        """Every partition that some broker should hold and does not hold up to date, or that nobody leads."""
        from confluent_kafka import KafkaException

        try:
            topics = self._admin.list_topics(timeout=REQUEST_S).topics
        except KafkaException as error:
            raise TestbedError(f"kafka at {self.bootstrap}: no answer about its topics ({error.args[0].str()})") from error
        partitions = {f"{name}-{number}": found for name, topic in topics.items() for number, found in topic.partitions.items()}
        return sorted(name for name, found in partitions.items() if found.leader < 0 or set(found.isrs) < set(found.replicas))

    def move_leaders(self, topic: str) -> dict[int, int]:
        """Put the next replica of each partition first, and have it lead. Returns which broker is to lead each partition."""
        from kafka import TopicPartition

        replicas = {number: list(partition.replicas) for number, partition in self._topic(topic).partitions.items()}
        wanted = {number: [*brokers[1:], brokers[0]] for number, brokers in replicas.items()}
        with _asking(self.bootstrap) as admin:
            refused = admin.alter_partition_reassignments({TopicPartition(topic, number): to for number, to in wanted.items()})
            if any(refused.values()):
                raise TestbedError(f"kafka at {self.bootstrap}: the replicas of {topic} could not be put in another order: {refused}")
            admin.elect_leaders(0, {topic: list(wanted)}, raise_errors=False)  # one that leads already needs no election
        return {number: brokers[0] for number, brokers in wanted.items()}

    def coordinator(self, kind: Literal["group", "transaction"], name: str) -> int | None:
        """The broker that coordinates a consumer group, or a transactional id; None while there is none."""
        from kafka.errors import KafkaError
        from kafka.protocol.metadata import CoordinatorType

        try:
            with _asking(self.bootstrap) as admin:
                key = CoordinatorType.GROUP if kind == "group" else CoordinatorType.TRANSACTION
                found = admin._manager.run(functools.partial(admin._find_coordinator_ids, [name], key_type=key))
        except KafkaError:
            return None
        return int(found[name])

    def cluster_id(self) -> str:
        return str(self._settle(self._admin.describe_cluster(request_timeout=REQUEST_S), "no answer").cluster_id)

    def _settle(self, future: Any, what: str) -> Any:
        from confluent_kafka import KafkaException

        try:
            return future.result(timeout=REQUEST_S + 5)
        except (KafkaException, TimeoutError) as error:
            kind = _NotLeading if _is_not_leading(error) else TestbedError
            raise kind(f"kafka at {self.bootstrap}: {what}: {error}") from error


@contextlib.contextmanager
def _asking(bootstrap: str) -> Iterator[Any]:
    """kafka-python's admin client, for what confluent-kafka's does not ask."""
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=int(REQUEST_S * 1000), client_id="streamproof")
    try:
        yield admin
    finally:
        admin.close()


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


def wait_until_answering(bootstrap: str, brokers: int = 1, timeout_s: float = READY_S) -> None:
    """Wait until Kafka answers requests, which is later than accepting connections, and knows of so many brokers."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            found = len(admin.list_topics(timeout=2.0).brokers)
            if found >= brokers:
                return
            said = f"it knows {found} of {brokers} brokers"
        except KafkaException as error:
            said = error.args[0].str()
        if time.monotonic() > deadline:
            raise TestbedError(f"kafka at {bootstrap}: not ready within {timeout_s:.0f} s ({said})")
        time.sleep(POLL_S)
