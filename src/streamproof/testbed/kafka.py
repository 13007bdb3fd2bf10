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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from streamproof import settings
from streamproof.kafka.asking import (
    ELECTION_NOT_NEEDED,
    INVALID_PARTITIONS,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    Answer,
    asked,
    code_of,
    ordered,
)
from streamproof.kafka.servers import kafka_python, librdkafka
from streamproof.testbed import hosts, install, java
from streamproof.testbed.process import Handle, TestbedError, environment, listening, remembered, running, spawn, stop, wait_until

ROLE = "kafka"
READY_S = 60.0
REQUEST_S = 15.0
RESULT_S = REQUEST_S + 5.0
PATIENCE_S = 30.0
POLL_S = 0.05
HEAP = ["-Xms256m", "-Xmx768m"]
_PREFERRED, _UNCLEAN = 0, 1  # kinds of election
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
    return [ROLE] if brokers == 1 else [f"{ROLE}-{number}" for number in range(1, brokers + 1)]


def _configuration(brokers: Sequence[KafkaPorts], number: int, data: Path) -> str:
    """Of broker ``number``, counted from 1."""
    ports, replicas = brokers[number - 1], len(brokers)
    in_sync, names = replicas // 2 + 1, roles(len(brokers))
    own, proxy = hosts.of(names[number - 1]), hosts.of("toxiproxy")
    options = {
        "process.roles": "broker,controller",
        "node.id": number,
        "controller.quorum.voters": ",".join(
            f"{node}@{hosts.of(role)}:{broker.controller}" for node, (role, broker) in enumerate(zip(names, brokers, strict=True), 1)
        ),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "DIRECT",
        "listeners": _listeners(
            hosts.listen(), DIRECT=ports.direct, DRIVER=ports.driver, EXECUTORS=ports.executors, CONTROLLER=ports.controller
        ),
        "advertised.listeners": ",".join(
            [_listeners(own, DIRECT=ports.direct), _listeners(proxy, DRIVER=ports.driver_proxy, EXECUTORS=ports.executors_proxy)]
        ),
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


def _listeners(host: str, **ports: int) -> str:
    return ",".join(f"{name}://{host}:{port}" for name, port in ports.items())


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
        return list(pool.map(lambda number: start_one(folder, brokers, number), range(1, len(brokers) + 1)))


def start_one(folder: Path, brokers: Sequence[KafkaPorts], number: int) -> Handle:
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
    wait_until(f"{role}: accept connections", lambda: ready(role, ports), READY_S, process=handle)
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


def ready(role: str, ports: KafkaPorts) -> bool:
    """Whether the broker that plays the role accepts connections on all of its listeners for clients."""
    return all(listening(hosts.of(role), port) for port in (ports.direct, ports.driver, ports.executors))


class Cluster:
    """What the judge asks of Kafka, over the direct listener.

    One request waits ``REQUEST_S`` for its answer. What fails for a moment (a broker has died, has just come back, hands a partition on) is
    asked again, until ``PATIENCE_S`` are over. What fails for good raises TestbedError.
    """

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka.admin import AdminClient

        self.bootstrap = bootstrap
        self._admin = AdminClient({**librdkafka(bootstrap), "log_level": 2, "topic.metadata.refresh.interval.ms": 1000})

    def _ask(self, what: str, question: Callable[[], Answer]) -> Answer:
        """Every question goes through here. ``what`` says what is wrong when there is no answer."""
        with self._explained(what):
            return asked(question, PATIENCE_S, also=_also_passing())

    def _order(self, what: str, order: Callable[[], object], done: int) -> None:
        """Every order that can be carried out only once goes through here; see :func:`streamproof.kafka.asking.ordered`."""
        with self._explained(what):
            ordered(order, PATIENCE_S, done=done)

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        from confluent_kafka import KafkaException
        from kafka.errors import KafkaError

        try:
            yield
        except (KafkaException, KafkaError, TimeoutError) as error:
            raise TestbedError(f"kafka at {self.bootstrap}: {what}: {error}") from error

    def create_topics(self, topics: Mapping[str, int], **configuration: str) -> None:
        """Create topics (name to partition count) and wait until every partition has a leader that knows it is one."""
        from confluent_kafka.admin import NewTopic

        for name, count in topics.items():
            # As many replicas as there are brokers: their default.
            new = NewTopic(name, count, replication_factor=-1, config=dict(configuration))
            create = functools.partial(_one_result, self._admin.create_topics, [new])
            self._order(f"topic {name} could not be created", create, done=TOPIC_ALREADY_EXISTS)
        for name, count in topics.items():
            self.wait_for_partitions(name, count)
            self.end_offsets(name)

    def delete_topics(self, names: list[str]) -> None:
        """Delete those of the topics that exist."""
        for name in names:
            self._ask(f"topic {name} could not be deleted", functools.partial(self._delete_topic, name))

    def _delete_topic(self, name: str) -> None:
        from confluent_kafka import KafkaException

        try:
            _one_result(self._admin.delete_topics, [name])
        except KafkaException as error:
            if code_of(error) != UNKNOWN_TOPIC_OR_PARTITION:
                raise

    def partitions(self, topic: str) -> int:
        """How many partitions ``topic`` has, 0 when there is no such topic."""
        return self._ask(f"no answer about topic {topic}", lambda: len(self._topic(topic).partitions))

    def topic_id(self, topic: str) -> str:
        """The id that a topic was made with; one that is made again under its name has another. Raises TestbedError without a topic."""
        from confluent_kafka import TopicCollection

        described = self._ask(f"no answer about topic {topic}", lambda: _one_result(self._admin.describe_topics, TopicCollection([topic])))
        return str(described.topic_id)

    def _metadata(self, topic: str) -> Any:
        """What a broker knows of the brokers and of ``topic``. A topic that is not there has no partitions."""
        from confluent_kafka import KafkaException

        metadata = self._admin.list_topics(topic, timeout=REQUEST_S)
        error = metadata.topics[topic].error
        if error is not None and error.code() != UNKNOWN_TOPIC_OR_PARTITION:
            raise KafkaException(error)
        return metadata

    def _topic(self, topic: str) -> Any:
        return self._metadata(topic).topics[topic]

    def wait_for_partitions(self, topic: str, count: int) -> None:
        def led() -> bool:
            partitions = self._ask(f"no answer about topic {topic}", lambda: self._topic(topic).partitions)
            return len(partitions) >= count and all(partition.leader >= 0 for partition in partitions.values())

        wait_until(f"topic {topic}: {count} partitions with a leader", led, PATIENCE_S)

    def add_partitions(self, topic: str, count: int) -> None:
        """Grow ``topic`` to ``count`` partitions and wait until each has a leader."""
        from confluent_kafka.admin import NewPartitions

        grow = functools.partial(_one_result, self._admin.create_partitions, [NewPartitions(topic, count)])
        self._order(f"topic {topic} could not be grown to {count} partitions", grow, done=INVALID_PARTITIONS)
        self.wait_for_partitions(topic, count)

    def end_offsets(self, topic: str, *, committed: bool = False) -> dict[int, int]:
        """The end of each partition: its high watermark, or with ``committed`` its last stable offset (no open transaction below)."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(topic, OffsetSpec.latest(), committed)  # type: ignore[no-untyped-call]

    def start_offsets(self, topic: str) -> dict[int, int]:
        """The first offset of each partition that is still there."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(topic, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def _offsets(self, topic: str, which: Any, committed: bool = False) -> dict[int, int]:
        from confluent_kafka import IsolationLevel, TopicPartition

        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

        def offsets() -> dict[int, int]:
            wanted = {TopicPartition(topic, number): which for number in self._topic(topic).partitions}
            listed = _results(self._admin.list_offsets, wanted, isolation_level=level) if wanted else {}
            return {at.partition: int(result.offset) for at, result in listed.items()}

        return self._ask(f"no answer about the offsets of topic {topic}", offsets)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records of each partition that lie before an offset. Raises TestbedError where there is no such offset."""
        from confluent_kafka import TopicPartition

        ends = [TopicPartition(topic, number, offset) for number, offset in before.items()]
        self._ask(f"records of topic {topic} could not be deleted", lambda: _results(self._admin.delete_records, ends))

    def leaders(self, topic: str) -> dict[int, int]:
        """The broker that leads each partition, -1 where none does."""
        partitions = self._ask(f"no answer about topic {topic}", lambda: self._topic(topic).partitions)
        return {number: int(partition.leader) for number, partition in partitions.items()}

    def leader_addresses(self, topic: str) -> dict[int, str]:
        """The address of the broker that leads each partition; a partition that none leads is left out."""
        metadata = self._ask(f"no answer about topic {topic}", lambda: self._metadata(topic))
        addresses = {number: f"{broker.host}:{broker.port}" for number, broker in metadata.brokers.items()}
        partitions = metadata.topics[topic].partitions.items()
        return {number: addresses[partition.leader] for number, partition in partitions if partition.leader in addresses}

    def advertised(self) -> list[str]:
        """The addresses that the brokers give to who comes this way."""
        brokers = self._ask("no answer about its brokers", lambda: self._admin.list_topics(timeout=REQUEST_S).brokers)
        return [f"{broker.host}:{broker.port}" for broker in brokers.values()]

    def in_sync(self, topic: str, partition: int) -> list[int]:
        """The brokers that have all of a partition."""
        return sorted(self._ask(f"no answer about topic {topic}", lambda: self._topic(topic).partitions[partition].isrs))

    def keep_on(self, topic: str, partition: int, brokers: Sequence[int]) -> None:
        """Have ``brokers`` hold a partition, the first of them as its preferred leader."""
        what = f"{topic}-{partition} could not be moved to {list(brokers)}"
        self._ask(what, lambda: _reassign(self.bootstrap, topic, {partition: list(brokers)}))

    def configure(self, topic: str, **options: str) -> None:
        """Set options of a topic, those with a dot in their name written with an underscore."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        set_to = AlterConfigOpType.SET
        entries = [ConfigEntry(name.replace("_", "."), value, incremental_operation=set_to) for name, value in options.items()]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._ask(f"topic {topic} could not be configured", lambda: _one_result(self._admin.incremental_alter_configs, [resource]))

    def elect_unclean(self, topic: str, partition: int) -> None:
        """Have a broker lead a partition that has not all of it, because none that has all is there."""
        self._ask(f"no leader could be elected for {topic}-{partition}", lambda: _elect(self.bootstrap, _UNCLEAN, topic, [partition]))

    def out_of_sync(self) -> list[str]:
        """Every partition that some broker should hold and does not hold up to date, or that nobody leads."""
        topics = self._ask("no answer about its topics", lambda: self._admin.list_topics(timeout=REQUEST_S).topics)
        partitions = {f"{name}-{number}": state for name, topic in topics.items() for number, state in topic.partitions.items()}
        return sorted(name for name, state in partitions.items() if state.leader < 0 or set(state.isrs) < set(state.replicas))

    def move_leaders(self, topic: str) -> dict[int, int]:
        """Put the next replica of each partition first, and have it lead. Returns which broker is to lead each partition."""
        partitions = self._ask(f"no answer about topic {topic}", lambda: self._topic(topic).partitions)
        replicas = {number: list(partition.replicas) for number, partition in partitions.items()}
        wanted = {number: [*brokers[1:], brokers[0]] for number, brokers in replicas.items()}
        what = f"the replicas of {topic} could not be put in another order"
        self._ask(what, lambda: _reassign(self.bootstrap, topic, wanted))
        self._ask(f"no leaders could be elected for {topic}", lambda: _elect(self.bootstrap, _PREFERRED, topic, list(wanted)))
        return {number: brokers[0] for number, brokers in wanted.items()}

    def topics(self) -> list[str]:
        """The topics, without Kafka's own."""
        found = self._ask("no answer about its topics", lambda: self._admin.list_topics(timeout=REQUEST_S).topics)
        return sorted(name for name in found if not name.startswith("__"))

    def groups_on(self, topic: str) -> dict[str, int]:
        """The consumer groups that have committed offsets of ``topic``: the sum of each group's offsets."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        def names() -> list[str]:
            return [group.group_id for group in self._admin.list_consumer_groups(request_timeout=REQUEST_S).result(RESULT_S).valid]

        def committed(group: str) -> int:
            asked_for = [ConsumerGroupTopicPartitions(group)]
            (answer,) = _results(self._admin.list_consumer_group_offsets, asked_for).values()
            return sum(each.offset for each in answer.topic_partitions if each.topic == topic and each.offset >= 0)

        groups = self._ask("no answer about its consumer groups", names)
        what = "no answer about the offsets of a consumer group"
        counts = {group: self._ask(what, functools.partial(committed, group)) for group in groups}
        return {group: count for group, count in counts.items() if count}

    def group_members(self, group: str) -> frozenset[str]:
        """The ids of the members that a consumer group has now; none of a group that there is not. Raises TestbedError."""

        def ids() -> frozenset[str]:
            (answer,) = _results(self._admin.describe_consumer_groups, [group]).values()
            return frozenset(member.member_id for member in answer.members)

        return self._ask("no answer about the members of a consumer group", ids)

    def coordinator(self, kind: Literal["group", "transaction"], name: str) -> int | None:
        """The broker that coordinates a consumer group, or a transactional id; None while there is none."""
        from kafka.errors import CoordinatorNotAvailableError
        from kafka.protocol.metadata import CoordinatorType

        key = CoordinatorType.GROUP if kind == "group" else CoordinatorType.TRANSACTION

        def named() -> int | None:
            with _asking(self.bootstrap) as admin:
                try:
                    return int(admin._manager.run(functools.partial(admin._find_coordinator_ids, [name], key_type=key))[name])
                except CoordinatorNotAvailableError:
                    return None

        return self._ask(f"no answer about the coordinator of {kind} {name}", named)

    def cluster_id(self) -> str:
        described = self._ask("no answer", lambda: self._admin.describe_cluster(request_timeout=REQUEST_S).result(timeout=RESULT_S))
        return str(described.cluster_id)


def _results(request: Callable[..., Mapping[Any, Any]], *asked_for: Any, **options: Any) -> dict[Any, Any]:
    """What confluent-kafka's admin client answers to a request, by what was asked for. Raises KafkaException when one of it failed."""
    return {key: future.result(timeout=RESULT_S) for key, future in request(*asked_for, request_timeout=REQUEST_S, **options).items()}


def _one_result(request: Callable[..., Mapping[Any, Any]], asked_for: Any) -> Any:
    (result,) = _results(request, asked_for).values()
    return result


def _reassign(bootstrap: str, topic: str, brokers: Mapping[int, list[int]]) -> None:
    """Have brokers hold each partition. To repeat it is harmless. Raises kafka-python's KafkaError."""
    from kafka import TopicPartition

    with _asking(bootstrap) as admin:
        for error in admin.alter_partition_reassignments({TopicPartition(topic, at): on for at, on in brokers.items()}).values():
            if error is not None:
                raise error


def _elect(bootstrap: str, kind: int, topic: str, partitions: list[int]) -> None:
    """Have leaders elected. Whoever leads already needs no election. Raises kafka-python's KafkaError."""
    from kafka.errors import for_code

    with _asking(bootstrap) as admin:
        answer = admin.elect_leaders(kind, {topic: partitions}, raise_errors=False)
    elections = [election for topic_result in answer.replica_election_results for election in topic_result.partition_result]
    codes = [answer.error_code, *(election.error_code for election in elections)]
    for code in codes:
        if code not in (0, ELECTION_NOT_NEEDED):
            raise for_code(code)


def _also_passing() -> tuple[type[Exception], ...]:
    """What kafka-python raises of a broker that has died since it was listed; it does not call it retriable."""
    from kafka.errors import UnknownBrokerIdError

    return (UnknownBrokerIdError,)


@contextlib.contextmanager
def _asking(bootstrap: str) -> Iterator[Any]:
    """kafka-python's admin client, for what confluent-kafka's does not ask."""
    from kafka.admin import KafkaAdminClient
    from kafka.errors import NotControllerError

    limits = dict.fromkeys(("request_timeout_ms", "bootstrap_timeout_ms"), int(REQUEST_S * 1000))
    admin = KafkaAdminClient(**kafka_python(bootstrap), client_id="streamproof", **limits)
    try:
        yield admin
    except RuntimeError as error:  # it asked two brokers, and neither was the controller: no error of its own kind
        if "active controller" not in str(error):
            raise
        raise NotControllerError(str(error)) from error
    finally:
        admin.close()


def fence(bootstrap: str, transactional_id: str) -> None:
    """Take a transactional id over: its open transaction is aborted, whoever held it is refused. Raises TestbedError."""
    from confluent_kafka import KafkaException, Producer

    producer: Producer = Producer({**librdkafka(bootstrap), "transactional.id": transactional_id, "log_level": 2})
    try:
        asked(lambda: producer.init_transactions(REQUEST_S), PATIENCE_S)
    except KafkaException as error:
        raise TestbedError(f"kafka at {bootstrap}: {transactional_id} could not be taken over: {error}") from error


def wait_until_answering(bootstrap: str, brokers: int = 1, timeout_s: float = READY_S) -> None:
    """Wait until Kafka answers requests, which is later than accepting connections, and knows of so many brokers."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({**librdkafka(bootstrap), "log_level": 0})
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            answering = len(admin.list_topics(timeout=2.0).brokers)
            if answering >= brokers:
                return
            state = f"it knows {answering} of {brokers} brokers"
        except KafkaException as error:
            state = error.args[0].str()
        if time.monotonic() > deadline:
            raise TestbedError(f"kafka at {bootstrap}: not ready within {timeout_s:.0f} s ({state})")
        time.sleep(POLL_S)
