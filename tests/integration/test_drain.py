"""The drain reads a real topic to its true end, says when it cannot, and the workload's sender tells what became of each record."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from streamproof.evidence import histories, identity
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.kafka.transactions import Coordinator
from streamproof.load.workload import Sender
from streamproof.sinks import delivered as writing
from streamproof.sinks import origin
from streamproof.sinks.kafka import drain as draining
from streamproof.sinks.kafka.drain import drain
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.verdict.checks.records import check
from tests.integration.conftest import Prepare

TIMEOUT_S = 20.0
Headers = Sequence[tuple[str, bytes]]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def _produce(testbed: Testbed, topic: str, *values: bytes | None, partition: int = 0, headers: Headers = ()) -> None:
    producer = Producer({"bootstrap.servers": testbed.direct_kafka})
    for value in values:
        producer.produce(topic, value, partition=partition, headers=list(headers))
    assert producer.flush(10) == 0


def _transactions(testbed: Testbed, topic: str, *sizes: int, abort: bool = False) -> None:
    """Transactions one after the other, each of so many records; the markers leave gaps between the offsets."""
    producer = Producer({"bootstrap.servers": testbed.direct_kafka, "transactional.id": f"{topic}.{abort}"})
    producer.init_transactions(20)
    for number, size in enumerate(sizes):
        producer.begin_transaction()
        for sequence in range(size):
            producer.produce(topic, identity.encode(number, sequence, b"{}"), partition=sequence % 2)
        if abort:
            producer.flush(10)
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)


def test_a_topic_with_transaction_markers_is_read_to_its_end(testbed: Testbed, cluster: Cluster, topic: str, folder: RunFolder) -> None:
    _transactions(testbed, topic, 4, 6)
    _transactions(testbed, topic, 8, abort=True)
    found = drain(folder, testbed.direct_kafka, topic, TIMEOUT_S)
    assert (found["complete"], found["reason"], found["records"]) == (True, None, 10)
    assert found["end_offsets"] == {str(partition): end for partition, end in cluster.end_offsets(topic).items()}
    assert sum(found["end_offsets"].values()) > 10, "there are gaps"
    delivered = histories.read_delivered(folder)
    assert sorted(zip(delivered.producer.tolist(), delivered.sequence.tolist(), strict=True)) == [
        *((0, sequence) for sequence in range(4)),
        *((1, sequence) for sequence in range(6)),
    ]
    assert folder.read_json(folder.drain) == found


def test_an_empty_topic_is_read_to_its_end(testbed: Testbed, topic: str, folder: RunFolder) -> None:
    found = drain(folder, testbed.direct_kafka, topic, TIMEOUT_S)
    assert (found["complete"], found["records"], len(histories.read_delivered(folder))) == (True, 0, 0)


def test_a_topic_with_nothing_but_aborted_records_is_read_to_its_end(testbed: Testbed, topic: str, folder: RunFolder) -> None:
    _transactions(testbed, topic, 5, abort=True)
    found = drain(folder, testbed.direct_kafka, topic, TIMEOUT_S)
    assert (found["complete"], found["records"]) == (True, 0)


def test_an_open_transaction_makes_the_drain_incomplete_and_its_end_complete_again(
    testbed: Testbed, topic: str, folder: RunFolder, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "STABLE_S", 0.3)
    _produce(testbed, topic, identity.encode(0, 0, b"{}"))
    name = prepare(topic, records=2, value=identity.encode(1, 1, b"{}").decode())
    _produce(testbed, topic, identity.encode(0, 1, b"{}"))
    with Coordinator(testbed.direct_kafka) as coordinator:
        try:
            found = drain(folder, testbed.direct_kafka, topic, TIMEOUT_S)
            assert (found["complete"], found["records"]) == (False, 1)
            assert found["reason"] == "an open transaction holds back partitions [0, 1]"
        finally:
            coordinator.abort(coordinator.ongoing(name))
    monkeypatch.undo()
    again = drain(folder, testbed.direct_kafka, topic, TIMEOUT_S)
    assert (again["complete"], again["records"]) == (True, 2)
    assert len(histories.read_delivered(folder)) == 2, "a repeated drain starts over"


def test_identity_checksum_and_origin_are_decoded(testbed: Testbed, topic: str, folder: RunFolder) -> None:
    payload = b'{"n":1}'
    whole = identity.encode(3, 77, payload)
    _produce(testbed, topic, whole, headers=[("other", b"x"), (origin.HEADER, b"2.14.1")])
    _produce(testbed, topic, whole.replace(b'"n":1', b'"n":2'), b"not ours", None, partition=1)
    drain(folder, testbed.direct_kafka, topic, TIMEOUT_S)
    rows = sorted(pq.read_table(folder.delivered / "00000.parquet").to_pylist(), key=lambda row: (row["partition"], row["offset"]))
    named = [(row["producer"], row["sequence"], row["crc"], row["start"], row["batch"], row["attempt"]) for row in rows]
    assert named == [
        (3, 77, zlib.crc32(payload), 2, 14, 1),
        (3, 77, None, None, None, None),
        (None, None, None, None, None, None),
        (None, None, None, None, None, None),
    ]


@pytest.mark.parametrize("header", [b"", b"1.2", b"a.b.c", b"\xff", b"9999999999.1.1", b"-1.0.0", b"1.2.3.4"])
def test_a_header_that_is_not_ours_is_no_origin(testbed: Testbed, topic: str, folder: RunFolder, header: bytes) -> None:
    _produce(testbed, topic, identity.encode(0, 0, b"{}"), headers=[(origin.HEADER, header)])
    assert drain(folder, testbed.direct_kafka, topic, TIMEOUT_S)["records"] == 1
    assert histories.read_delivered(folder).batch.tolist() == [-1]


def test_a_topic_that_is_not_there_is_not_a_complete_drain_and_what_was_drained_is_kept(
    testbed: Testbed, topic: str, folder: RunFolder
) -> None:
    _produce(testbed, topic, identity.encode(0, 0, b"{}"))
    found = drain(folder, testbed.direct_kafka, topic, TIMEOUT_S)
    with pytest.raises(EvidenceError, match="has no topic no-such-topic"):
        drain(folder, testbed.direct_kafka, "no-such-topic", TIMEOUT_S)
    assert len(histories.read_delivered(folder)) == 1
    assert folder.read_json(folder.drain) == found


def test_a_drain_that_ends_in_the_middle_keeps_what_was_drained_before(
    testbed: Testbed, topic: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    _produce(testbed, topic, *(identity.encode(0, sequence, b"{}") for sequence in range(3)))
    found = drain(folder, testbed.direct_kafka, topic, TIMEOUT_S)
    _produce(testbed, topic, identity.encode(0, 3, b"{}"))
    with monkeypatch.context() as patch:
        patch.setattr(writing, "GROUP_RECORDS", 2)
        patch.setattr(draining.Delivered, "settle", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            drain(folder, testbed.direct_kafka, topic, TIMEOUT_S)
    assert (len(histories.read_delivered(folder)), folder.read_json(folder.drain)) == (3, found)
    assert drain(folder, testbed.direct_kafka, topic, TIMEOUT_S)["records"] == 4
    assert len(histories.read_delivered(folder)) == 4
    assert sorted(path.name for path in folder.delivered.iterdir()) == ["00000.parquet", "drain.json"]


# --- the sender ---------------------------------------------------------------------------------------------------------------------


def test_what_was_sent_and_what_was_drained_agree(testbed: Testbed, topic: str, folder: RunFolder) -> None:
    sender = Sender(folder, testbed.direct_kafka, topic)
    assert sender.partitions() == 2
    events = [(f"k{number % 7}", b'{"n":%d}' % number) for number in range(300)]
    for first in (0, 100, 200):
        sender.send(first, events[first : first + 100], 2)
    sender.save()
    drain(folder, testbed.direct_kafka, topic, TIMEOUT_S)
    found = check(histories.read_sent(folder), histories.read_delivered(folder))
    assert (found.acked, found.delivered, found.findings) == (300, 300, ())
    assert {str(outcome): count for outcome, count in sender.counts.items()} == {"ACKED": 300, "REJECTED": 0, "INDETERMINATE": 0}


def test_a_record_that_the_broker_refuses_is_rejected_and_is_not_delivered(testbed: Testbed, cluster: Cluster, folder: RunFolder) -> None:
    cluster.create_topics({"test-small": 2}, **{"max.message.bytes": "500"})
    try:
        sender = Sender(folder, testbed.direct_kafka, "test-small")
        for sequence, payload in enumerate((b"{}", b'{"long":"' + os.urandom(1000).hex().encode() + b'"}', b"{}")):
            sender.send(sequence, [("a", payload)], 2)
        sender.save()
        sent = histories.read_sent(folder)
        assert sent.acked.tolist() == [True, False, True]
        assert sent.rejected.tolist() == [False, True, False]
        assert (sent.offset >= 0).tolist() == [True, False, True]
        drain(folder, testbed.direct_kafka, "test-small", TIMEOUT_S)
        assert check(sent, histories.read_delivered(folder)).findings == ()
    finally:
        cluster.delete_topics(["test-small"])


def test_a_record_that_the_client_refuses_is_rejected(testbed: Testbed, topic: str, folder: RunFolder) -> None:
    sender = Sender(folder, testbed.direct_kafka, topic)
    sender.send(0, [("a", b'{"long":"' + b"x" * 2_000_000 + b'"}')], 2)
    assert {str(outcome): count for outcome, count in sender.counts.items()} == {"ACKED": 0, "REJECTED": 1, "INDETERMINATE": 0}
    sender.send(1, [("b", b"{}")], 2)
    sender.save()
    assert {str(outcome): count for outcome, count in sender.counts.items()} == {"ACKED": 1, "REJECTED": 1, "INDETERMINATE": 0}


def test_an_answer_that_comes_after_its_chunk_counts(
    testbed: Testbed, topic: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamproof.load import workload

    sender = Sender(folder, testbed.direct_kafka, topic)
    with monkeypatch.context() as patch:
        patch.setattr(workload, "FLUSH_S", 0)
        sender.send(0, [("a", b"{}")] * 50, 2)
    sender.save()
    assert sender.counts["ACKED"] == int(histories.read_sent(folder).acked.sum()) == 50


def test_a_sender_after_one_that_was_killed_knows_how_far_that_one_got(testbed: Testbed, topic: str, folder: RunFolder) -> None:
    Sender(folder, testbed.direct_kafka, topic).send(0, [("a", b"{}")] * 50, 2)
    again = Sender(folder, testbed.direct_kafka, topic)
    assert (again.number, again.reached) == (1, 50)
    again.send(50, [("a", b"{}")] * 10, 2)
    again.save()
    drain(folder, testbed.direct_kafka, topic, TIMEOUT_S)
    found = check(histories.read_sent(folder), histories.read_delivered(folder))
    assert (found.acked, found.indeterminate, found.delivered, found.findings) == (60, 0, 60, ())


def test_a_send_that_is_never_answered_is_indeterminate(
    testbed: Testbed, topic: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamproof.load import workload

    monkeypatch.setattr(workload, "DELIVERY_TIMEOUT_MS", 1500)
    monkeypatch.setattr(workload, "FLUSH_S", 6.0)
    sender = Sender(folder, testbed.driver_kafka, topic)
    sender.send(0, [("a", b"{}")], 2)
    testbed.proxies.add("kafka-driver", "black-hole", "timeout", "downstream", {"timeout": 0})
    try:
        began = time.monotonic()
        sender.send(1, [("b", b"{}")], 2)
        assert time.monotonic() - began < 6, "it gave up by its own timeout"
    finally:
        testbed.proxies.reset("kafka-driver")
    sender.save()
    assert {str(outcome): count for outcome, count in sender.counts.items()} == {"ACKED": 1, "REJECTED": 0, "INDETERMINATE": 1}
    drain(folder, testbed.direct_kafka, topic, TIMEOUT_S)
    assert check(histories.read_sent(folder), histories.read_delivered(folder)).findings == ()
