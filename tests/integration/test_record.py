"""A topic is recorded, and sent again: the same keys, values, headers and times, with an identity beside them."""

from __future__ import annotations

import uuid
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from typer.testing import CliRunner

from streamproof.cli.main import app
from streamproof.errors import BadInput
from streamproof.evidence import histories, locations
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.locations import Kind, Location
from streamproof.load import files
from streamproof.load.workload import Sender
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster

COUNT = 300
YEARS_AGO_MS = 1_500_000_000_000


def _read(bootstrap: str, topic: str, count: int) -> list[Message]:
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex})) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in Cluster(bootstrap).end_offsets(topic)])
        found: list[Message] = []
        while len(found) < count and (some := consumer.consume(count, timeout=30)):
            found += [message for message in some if message.error() is None]
    return found


def _by_key(messages: list[Message], location: Location) -> dict[Any, list[Any]]:
    """What each key's records say, in their order, without the identity."""
    found = defaultdict(list)
    for message in messages:
        headers = [header for header in message.headers() or () if header[0] != location.header]
        found[message.key()].append((message.value(), headers, message.timestamp()[1]))
    return found


def test_a_recorded_topic_is_sent_again_with_keys_headers_and_times(testbed: Testbed, tmp_path: Path) -> None:
    topic, again = (f"test-{uuid.uuid4().hex[:8]}" for _ in range(2))
    cluster = Cluster(testbed.direct_kafka)
    cluster.create_topics({topic: 3, again: 3}, **{"retention.ms": "-1"})
    try:
        producer = Producer({"bootstrap.servers": testbed.direct_kafka, "transactional.id": topic})
        producer.init_transactions()
        for aborted in (True, False):  # what was never committed is not recorded
            producer.begin_transaction()
            for number in range(COUNT):
                producer.produce(
                    topic,
                    b"\x00%d" % number,
                    f"k{number % 7}",
                    headers=[("trace", b"%d" % number)],
                    timestamp=YEARS_AGO_MS + number + aborted,
                )
            producer.abort_transaction() if aborted else producer.commit_transaction()
        file = tmp_path / "orders.parquet"
        answer = CliRunner().invoke(app, ["record", topic, "--bootstrap-servers", testbed.direct_kafka, "--to", str(file)])
        assert answer.exit_code == 0, answer.output
        events = list(files.events(file, None))
        assert len(events) == COUNT
        location = Location(Kind.HEADER, ("id",), True)
        sender = Sender(RunFolder.create(tmp_path / "run"), testbed.direct_kafka, again, location, True)
        sender.send(0, events, 3)
        sender.save()
        before, after = _read(testbed.direct_kafka, topic, COUNT), _read(testbed.direct_kafka, again, COUNT)
        assert _by_key(before, location) == _by_key(after, location)
        identities = {dict(message.headers() or ())["id"] for message in after}
        assert identities == {locations.text(0, number).encode() for number in range(COUNT)}
        assert histories.read_sent(RunFolder(tmp_path / "run")).acked.all()
    finally:
        cluster.delete_topics([topic, again])


@pytest.mark.parametrize(
    ("topic", "servers", "says"), [("no-such-topic", None, "has no topic no-such-topic"), ("x", "127.0.0.1:1", "127.0.0.1:1")]
)
def test_a_topic_that_cannot_be_recorded_is_named(topic: str, servers: str | None, says: str, testbed: Testbed, tmp_path: Path) -> None:
    command = ["record", topic, "--bootstrap-servers", servers or testbed.direct_kafka, "--to", str(tmp_path / "x.parquet")]
    answer = CliRunner().invoke(app, command)
    assert isinstance(answer.exception, BadInput)
    assert says in str(answer.exception)
    assert not (tmp_path / "x.parquet").exists()
