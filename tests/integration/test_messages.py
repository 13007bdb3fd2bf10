"""Message links between real clients and real servers: what is held, dropped, answered late or answered to nobody, and what comes of it."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from streamproof.kafka.transactions import Coordinator
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.messages import Event, Message, Messages, Rule, read_trace
from streamproof.testbed.process import TestbedError, wait_until
from tests.support.delivered import delivered

WAIT_S = 60.0
ENDED = ("PrepareCommit", "CompleteCommit")


@pytest.fixture
def messages(testbed: Testbed) -> Iterator[Messages]:
    """Links before every server; the proxies lead straight again afterwards."""
    testbed.read_messages({"kafka", "postgres"})
    yield testbed.messages
    testbed.straighten()


@pytest.fixture
def trace(messages: Messages, tmp_path: Path) -> Callable[[], list[Message]]:
    """What was traced so far."""
    path = tmp_path / "messages.jsonl"
    messages.trace(path)

    def read() -> list[Message]:
        messages.state()
        return list(read_trace(path))

    return read


@pytest.fixture
def table(testbed: Testbed) -> Iterator[str]:
    name = f"t{uuid.uuid4().hex[:8]}"
    with psycopg.connect(testbed.direct_postgres, autocommit=True) as direct:
        direct.execute(f"CREATE TABLE {name} (id int)")
    yield name
    with psycopg.connect(testbed.direct_postgres, autocommit=True) as direct:
        for (gid,) in direct.execute("SELECT gid FROM pg_prepared_xacts WHERE gid LIKE %s", [f"{name}%"]).fetchall():
            direct.execute(f"ROLLBACK PREPARED '{gid}'")
        direct.execute(f"DROP TABLE {name}")


def producer(testbed: Testbed, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": testbed.driver_kafka, "log_level": 0, "retry.backoff.ms": 50, "linger.ms": 0, **settings})


def values(testbed: Testbed, topic: str, isolation: str = "read_committed") -> list[str]:
    return sorted(message.value().decode() for message in delivered(testbed, topic, isolation))


def event(messages: Messages, rule: str, kind: str) -> Event:
    """The first event of that kind, which must come."""
    seen: list[Event] = []

    def came() -> bool:
        seen[:] = [event for event in messages.events(0, rule) if event.kind == kind]
        return bool(seen)

    wait_until(f"{rule}: {kind}", came, WAIT_S)
    return seen[0]


def content(event: Event) -> Message:
    assert event.message is not None
    return event.message


def kinds(messages: Messages, rule: str) -> list[str]:
    return [event.kind for event in messages.events(0, rule)]


@contextlib.contextmanager
def beside(call: Callable[[], object]) -> Iterator[threading.Thread]:
    """``call`` in a thread that has ended afterwards."""
    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(WAIT_S)
        assert not thread.is_alive()


# --- Kafka ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("idempotent", "copies"), [(False, 2), (True, 1)], ids=["without idempotence", "with idempotence"])
def test_a_lost_answer_to_a_produce_doubles_only_what_is_not_idempotent(
    testbed: Testbed, messages: Messages, topic: str, idempotent: bool, copies: int
) -> None:
    client = producer(testbed, **{"enable.idempotence": idempotent, "acks": "all"})
    messages.arm(Rule("lost", "Produce", "lose_answer", topic=topic))
    client.produce(topic, "a", "k", 0)
    assert client.flush(WAIT_S) == 0
    answer = content(event(messages, "lost", "answered"))
    assert (answer.done, answer.errors, answer.places[0].topic, answer.places[0].offset) == (True, (0,), topic, 0)
    assert kinds(messages, "lost") == ["matched", "answered", "lost"]
    assert values(testbed, topic) == ["a"] * copies


def test_a_dropped_produce_is_not_written_and_comes_again(
    testbed: Testbed, messages: Messages, topic: str, trace: Callable[[], list[Message]]
) -> None:
    client = producer(testbed)
    messages.arm(Rule("dropped", "Produce", "drop_request", topic=topic))
    client.produce(topic, "a", "k", 0)
    assert client.flush(WAIT_S) == 0
    assert kinds(messages, "dropped") == ["matched", "dropped"]
    assert values(testbed, topic) == ["a"]
    produced = [message for message in trace() if message.message == "Produce"]
    assert [message.direction for message in produced] == ["request", "request", "answer"]
    assert len({message.connection for message in produced}) == 2
    assert [place.records for place in produced[0].places] == [1]


@pytest.mark.parametrize("side", ["request", "answer"])
def test_a_held_end_of_a_transaction_is_seen_at_its_coordinator(testbed: Testbed, messages: Messages, topic: str, side: Any) -> None:
    name = f"held-{uuid.uuid4().hex[:8]}"
    client = producer(testbed, **{"transactional.id": name})
    client.init_transactions(WAIT_S)
    client.begin_transaction()
    client.produce(topic, "a", "k", 0)
    messages.arm(Rule("held", "EndTxn", "hold", side=side, transactional_id=f"^{name}$"))
    with beside(lambda: client.commit_transaction(WAIT_S)) as commit:
        held = event(messages, "held", "held")
        with Coordinator(testbed.direct_kafka) as coordinator:
            _, state = coordinator.holder(name)
        assert state == "Ongoing" if side == "request" else state in ENDED
        assert commit.is_alive(), "its client waits"
        port = content(held).client_port
        assert port in {connection.laddr.port for connection in psutil.Process().net_connections("tcp")}, "the client is this process"
        messages.release(held.held)
    assert values(testbed, topic) == ["a"]


def test_a_lost_answer_to_the_end_of_a_transaction_commits_once(testbed: Testbed, messages: Messages, topic: str) -> None:
    client = producer(testbed, **{"transactional.id": f"lost-{uuid.uuid4().hex[:8]}"})
    client.init_transactions(WAIT_S)
    messages.arm(Rule("lost", "EndTxn", "lose_answer"))
    for value in ("a", "b"):
        client.begin_transaction()
        client.produce(topic, value, "k", 0)
        client.commit_transaction(WAIT_S)
    answer = content(event(messages, "lost", "answered"))
    assert (answer.done, answer.commit) == (True, True)
    assert values(testbed, topic) == ["a", "b"]


@pytest.mark.parametrize("until", ["", "Produce"], ids=["once it is released", "once the next Produce is answered"])
def test_a_late_end_of_a_transaction_commits_the_next_one_of_a_producer_that_does_not_ask_for_a_new_epoch(
    testbed: Testbed, messages: Messages, topic: str, until: str
) -> None:
    """librdkafka 2.16 has no KIP-890 (confluentinc/librdkafka#5423). When this fails after an update, change docs/claims.md."""
    name = f"late-{uuid.uuid4().hex[:8]}"
    client = producer(testbed, **{"transactional.id": name})
    client.init_transactions(WAIT_S)
    messages.arm(Rule("late", "EndTxn", "late_request", until=until, delay_ms=30_000 if until else 0))
    client.begin_transaction()
    client.produce(topic, "first", "k", 0)
    client.commit_transaction(WAIT_S)  # sent again over another connection
    wait_until("the first transaction to be visible", lambda: values(testbed, topic) == ["first"], WAIT_S)
    assert "late" not in kinds(messages, "late")
    client.begin_transaction()
    client.produce(topic, "second", "k", 0)
    assert client.flush(WAIT_S) == 0
    if not until:
        assert values(testbed, topic) == ["first"]
        messages.release(event(messages, "late", "held").held)
    assert content(event(messages, "late", "answered")).errors == (0,), "the broker took it"
    wait_until("the open transaction to be visible", lambda: values(testbed, topic) == ["first", "second"], WAIT_S)
    with pytest.raises(KafkaException):  # its application wanted to abort it
        client.abort_transaction(WAIT_S)


@pytest.mark.parametrize("forward", [False, True], ids=["not asked", "asked"])
def test_a_retriable_error_in_place_of_an_answer_makes_an_idempotent_producer_send_again(
    testbed: Testbed, messages: Messages, topic: str, forward: bool
) -> None:
    client = producer(testbed, **{"enable.idempotence": True})
    client.produce(topic, "z", "k", 1)  # it knows its leader and its id
    assert client.flush(WAIT_S) == 0
    messages.arm(Rule("error", "Produce", "error_answer", topic=topic, code="6", forward=forward))
    client.produce(topic, "a", "k", 0)
    assert client.flush(WAIT_S) == 0
    assert kinds(messages, "error") == ["matched", *(["answered"] if forward else []), "replaced"]
    assert content(event(messages, "error", "replaced")).errors == (6,)
    assert values(testbed, topic) == ["a", "z"]


def test_a_fatal_error_is_the_clients(testbed: Testbed, messages: Messages, topic: str) -> None:
    messages.arm(Rule("error", "Produce", "error_answer", topic=topic, code="29"))
    errors: list[Any] = []
    client = producer(testbed)
    client.produce(topic, "a", "k", 0, on_delivery=lambda error, _: errors.append(error.code()))
    client.flush(WAIT_S)
    assert errors == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    assert values(testbed, topic) == []


def test_the_offsets_of_a_group_are_traced_without_what_the_records_hold(
    testbed: Testbed, messages: Messages, topic: str, trace: Callable[[], list[Message]], tmp_path: Path
) -> None:
    client = producer(testbed, **{"transactional.id": f"traced-{uuid.uuid4().hex[:8]}", "client.id": "the-job"})
    group = f"group-{uuid.uuid4().hex[:8]}"
    consumer: Consumer = Consumer({"bootstrap.servers": testbed.driver_kafka, "group.id": group})
    client.init_transactions(WAIT_S)
    client.begin_transaction()
    for number in range(3):
        client.produce(topic, "a value that is nobody's business", "k", number % 2)
    client.send_offsets_to_transaction([TopicPartition(topic, 1, 7)], consumer.consumer_group_metadata(), WAIT_S)
    client.commit_transaction(WAIT_S)
    consumer.close()
    seen = {(message.message, message.direction): message for message in trace() if message.client_id == "the-job"}
    assert {name for name, _ in seen} == {"InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"}
    offsets, end = seen["TxnOffsetCommit", "request"], seen["EndTxn", "request"]
    assert (offsets.group, [(place.topic, place.partition, place.offset) for place in offsets.places]) == (group, [(topic, 1, 7)])
    assert (end.commit, end.producer_id, end.transactional_id) == (True, offsets.producer_id, offsets.transactional_id)
    assert all(message.unread is None for message in seen.values())
    assert sum(place.records or 0 for message in trace() if message.message == "Produce" for place in message.places) >= 3
    assert "business" not in (tmp_path / "messages.jsonl").read_text()
    now = time.monotonic_ns()
    assert 0 < now - end.monotonic_ns < 120e9, "the clock is this machine's"


# --- PostgreSQL -----------------------------------------------------------------------------------------------------------------------


def rows(testbed: Testbed, table: str) -> int:
    with psycopg.connect(testbed.direct_postgres) as direct:
        (count,) = direct.execute(f"SELECT count(*) FROM {table}").fetchone() or (None,)
    assert isinstance(count, int)
    return count


@pytest.mark.parametrize(("action", "written"), [("lose_answer", 1), ("drop_request", 0)])
def test_a_client_cannot_tell_a_commit_whose_answer_is_lost_from_one_that_never_arrived(
    testbed: Testbed, messages: Messages, table: str, action: Any, written: int
) -> None:
    messages.arm(Rule("commit", "COMMIT", action))
    client = psycopg.connect(testbed.pipeline_postgres)
    client.execute(f"INSERT INTO {table} VALUES (1)")
    with pytest.raises(psycopg.OperationalError, match="server closed the connection unexpectedly"):
        client.commit()
    if written:
        assert content(event(messages, "commit", "answered")).results == ("COMMIT",)
    assert ("answered" in kinds(messages, "commit")) == bool(written)
    assert rows(testbed, table) == written


def test_a_lost_answer_to_commit_prepared_leaves_nothing_prepared(testbed: Testbed, messages: Messages, table: str) -> None:
    messages.arm(Rule("commit", "COMMIT PREPARED", "lose_answer"))
    with psycopg.connect(testbed.pipeline_postgres) as client:
        client.execute(f"INSERT INTO {table} VALUES (1)")
        client.execute(f"PREPARE TRANSACTION '{table}-1'")
    client = psycopg.connect(testbed.pipeline_postgres, autocommit=True)
    with pytest.raises(psycopg.OperationalError):
        client.execute(f"COMMIT PREPARED '{table}-1'")
    answer = content(event(messages, "commit", "answered"))
    assert (answer.done, answer.results, answer.transaction) == (True, ("COMMIT PREPARED",), "idle")
    assert rows(testbed, table) == 1
    client = psycopg.connect(testbed.pipeline_postgres, autocommit=True)
    with pytest.raises(psycopg.errors.UndefinedObject):
        client.execute(f"COMMIT PREPARED '{table}-1'")


@pytest.mark.parametrize("side", ["request", "answer"])
def test_a_held_commit_is_seen_at_the_server(testbed: Testbed, messages: Messages, table: str, side: Any) -> None:
    messages.arm(Rule("held", "COMMIT", "hold", side=side))
    client = psycopg.connect(testbed.pipeline_postgres)
    client.execute(f"INSERT INTO {table} VALUES (1)")
    with beside(client.commit):
        held = event(messages, "held", "held")
        assert rows(testbed, table) == (side == "answer")
        messages.release(held.held)
    assert rows(testbed, table) == 1
    client.close()


def test_a_held_request_that_is_dropped_never_reaches_the_server(testbed: Testbed, messages: Messages, table: str) -> None:
    messages.arm(Rule("held", "COMMIT", "hold", side="request"))
    client = psycopg.connect(testbed.pipeline_postgres)
    client.execute(f"INSERT INTO {table} VALUES (1)")

    def commits() -> None:
        with pytest.raises(psycopg.OperationalError):
            client.commit()

    with beside(commits):
        messages.drop(event(messages, "held", "held").held)
    assert rows(testbed, table) == 0


def test_a_late_commit_takes_effect_after_its_client_gave_up(testbed: Testbed, messages: Messages, table: str) -> None:
    messages.arm(Rule("late", "COMMIT", "late_request"))
    client = psycopg.connect(testbed.pipeline_postgres)
    client.execute(f"INSERT INTO {table} VALUES (1)")
    with pytest.raises(psycopg.OperationalError):
        client.commit()
    assert rows(testbed, table) == 0
    messages.release(event(messages, "late", "held").held)
    assert content(event(messages, "late", "answered")).results == ("COMMIT",)
    assert rows(testbed, table) == 1


@pytest.mark.parametrize("forward", [False, True], ids=["not asked", "asked"])
@pytest.mark.parametrize("fatal", [False, True], ids=["retriable", "fatal"])
def test_an_error_in_place_of_an_answer(testbed: Testbed, messages: Messages, table: str, fatal: bool, forward: bool) -> None:
    code, error = ("57P01", psycopg.errors.AdminShutdown) if fatal else ("40001", psycopg.errors.SerializationFailure)
    messages.arm(Rule("error", "INSERT", "error_answer", code=code, fatal=fatal, forward=forward))
    client = psycopg.connect(testbed.pipeline_postgres, autocommit=True)
    with pytest.raises(error):
        client.execute(f"INSERT INTO {table} VALUES (%s)", [1])
    assert rows(testbed, table) == forward
    if not fatal:  # the session goes on
        client.execute(f"INSERT INTO {table} VALUES (2)")
        assert rows(testbed, table) == forward + 1
    client.close()


def test_copy_and_statements_in_one_query_are_read(
    testbed: Testbed, messages: Messages, table: str, trace: Callable[[], list[Message]]
) -> None:
    with psycopg.connect(testbed.pipeline_postgres, autocommit=True) as client:
        client.execute(f"BEGIN; INSERT INTO {table} VALUES (41); COMMIT")
        with client.cursor().copy(f"COPY {table} FROM STDIN") as copy:
            for number in range(1000):
                copy.write_row([number])
        assert client.execute(f"SELECT count(*) FROM {table} WHERE id <> 4711").fetchone() == (1001,)
    answers = [message for message in trace() if message.direction == "answer"]
    assert [(message.message, message.results) for message in answers] == [
        ("BEGIN; INSERT; COMMIT", ("BEGIN", "INSERT 0 1", "COMMIT")),
        ("COPY", ("COPY 1000",)),
        ("SELECT", ("SELECT 1",)),
    ]
    assert answers[0].sql == f"BEGIN; INSERT INTO {table} VALUES (?); COMMIT"
    assert answers[2].sql == f"SELECT count(*) FROM {table} WHERE id <> ?"


# --- links ----------------------------------------------------------------------------------------------------------------------------


def test_without_links_the_proxies_lead_straight_and_with_them_up_leaves_them(testbed: Testbed) -> None:
    direct = {name: testbed.proxies.upstream(name) for name in testbed.links}
    linked = testbed.read_messages({"postgres"})
    try:
        assert linked == ["postgres"]
        assert {name for name in direct if testbed.proxies.upstream(name) != direct[name]} == {"postgres"}
        with pytest.raises(TestbedError, match="link postgres: there is one already"):
            testbed.read_messages({"postgres"})
    finally:
        assert testbed.straighten() == ["postgres"]
    assert {name: testbed.proxies.upstream(name) for name in testbed.links} == direct
    assert testbed.straighten() == []


def test_to_clear_releases_what_is_held(testbed: Testbed, messages: Messages, table: str) -> None:
    messages.arm(Rule("held", "SELECT", "hold", side="request"))
    with psycopg.connect(testbed.pipeline_postgres, autocommit=True) as client, beside(lambda: client.execute("SELECT 1")):
        event(messages, "held", "held")
        messages.disarm("held")
        messages.disarm("held")
    assert messages.state().held == ()


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule("r", "Prodouce", "hold", side="request"), 'rule r: there is no message "Prodouce"'),
        (Rule("r", "Produce", "hold"), "rule r: hold: expected the side request or answer"),
        (Rule("r", "Produce", "delay_answer"), "rule r: delay_answer: expected delay_ms above 0"),
        (Rule("r", "Produce", "error_answer", code="40001"), "rule r: error_answer: expected Kafka's error code"),
        (Rule("r", "COMMIT", "lose_answer", sql="("), r'rule r: expected a regular expression, came "\("'),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(messages: Messages, rule: Rule, expected: str) -> None:
    with pytest.raises(TestbedError, match=expected):
        messages.arm(rule)
    assert messages.state().rules == ()
