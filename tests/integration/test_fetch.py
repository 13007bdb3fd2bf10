"""What the drain reads is what confluent-kafka's consumer reads, record by record: whatever the producers did."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from streamproof.evidence import identity
from streamproof.evidence.folder import RunFolder
from streamproof.sinks import origin
from streamproof.sinks.kafka import fetch
from streamproof.sinks.kafka.drain import drain
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster

TIMEOUT_S = 30.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Row = tuple[Any, ...]


def consumed(testbed: Testbed, topic: str, partitions: int) -> list[Row]:
    """Every record as a read-committed consumer has it, decoded one by one."""
    options = {"bootstrap.servers": testbed.direct_kafka, "group.id": "compare", "isolation.level": "read_committed"}
    consumer: Consumer = Consumer({**options, "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    rows: list[Row] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"not read to the end within {TIMEOUT_S:.0f} s"
            for message in consumer.consume(1000, 0.1):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition())
                    continue
                found = identity.decode(message.value(), message.key())
                start, batch, attempt = origin.decode(message.headers())
                rows.append(
                    (
                        found.producer if found else None,
                        found.sequence if found else None,
                        found.crc if found and found.intact else None,
                        message.partition(),
                        message.offset(),
                        batch,
                        attempt,
                        start,
                        message.timestamp()[1],
                    )
                )
    finally:
        consumer.close()
    return sorted(rows, key=lambda row: row[3:5])


def drained(testbed: Testbed, topic: str, path: Path) -> list[Row]:
    folder = RunFolder.create(path)
    found = drain(folder, testbed.direct_kafka, topic, TIMEOUT_S)
    assert (found["complete"], found["reason"]) == (True, None)
    rows: list[Row] = []
    for file in sorted(folder.delivered.glob("*.parquet")):
        table = pq.read_table(file)
        columns = [table[name] if name != "delivered_at" else table[name].cast("int64") for name in table.column_names]
        rows += zip(*(column.to_pylist() for column in columns), strict=True)
    assert found["records"] == len(rows)
    return sorted(rows, key=lambda row: row[3:5])


def _values(rng: random.Random, count: int) -> Sequence[bytes | None]:
    """Records of ours, of which some are damaged, and records of others: without a value, empty, of something else."""
    found: list[bytes | None] = []
    for sequence in range(count):
        value = identity.encode(rng.randrange(3), sequence, b'{"n":"%s"}' % (b"x" * rng.randrange(200)))
        kind = rng.random()
        if kind < 0.02:
            found.append(None)
        elif kind < 0.04:
            found.append(b"")
        elif kind < 0.06:
            found.append(b'{"id":"not ours"}' * rng.randrange(1, 4))
        elif kind < 0.08:
            found.append(value[: rng.randrange(len(value))])
        elif kind < 0.10:
            found.append(value.replace(b"x", b"y", 1))
        else:
            found.append(value)
    return found


def _fill(testbed: Testbed, topic: str, partitions: int, rng: random.Random, **options: Any) -> None:
    producer: Producer = Producer({"bootstrap.servers": testbed.direct_kafka, "linger.ms": 5, **options})
    transactional = "transactional.id" in options
    if transactional:
        producer.init_transactions(20)
    for _ in range(4):
        if transactional:
            producer.begin_transaction()
        for value in _values(rng, 150):
            headers = rng.choice(
                [[], [(origin.HEADER, b"1.%d.0" % rng.randrange(3))], [("other", b"x"), (origin.HEADER, b"bad"), ("a", None)]]
            )
            key = rng.choice([None, b"", b"k%d" % rng.randrange(9), b"\xff\xfe"])
            producer.produce(topic, value, key, rng.randrange(partitions), headers=headers)
        assert producer.flush(20) == 0
        if transactional and rng.random() < 0.5:
            producer.abort_transaction(20)
        elif transactional:
            producer.commit_transaction(20)


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_kind_are_read_alike(testbed: Testbed, topic: str, tmp_path: Path, codec: str) -> None:
    rng = random.Random(codec)
    _fill(testbed, topic, 2, rng, **{"compression.type": codec})
    _fill(testbed, topic, 2, rng, **{"compression.type": codec, "transactional.id": f"{topic}.a"})
    _fill(testbed, topic, 2, rng)
    rows = drained(testbed, topic, tmp_path / "run")
    assert rows == consumed(testbed, topic, 2)
    assert len(rows) >= 1200


def test_transactions_that_lie_in_each_other_are_read_alike(
    testbed: Testbed, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when an answer holds but a batch or two, and a transaction ends many answers later."""
    monkeypatch.setattr(fetch, "PARTITION_BYTES", 4000)
    rng = random.Random(7)
    producers = [Producer({"bootstrap.servers": testbed.direct_kafka, "transactional.id": f"{topic}.{number}"}) for number in range(3)]
    for producer in producers:
        producer.init_transactions(20)
    opened = [False] * 3
    for sequence in range(60):
        number = rng.randrange(3)
        if not opened[number]:
            producers[number].begin_transaction()
            opened[number] = True
        for value in _values(rng, 12):
            producers[number].produce(topic, value, partition=rng.randrange(2), headers=[(origin.HEADER, b"1.%d.0" % sequence)])
        assert producers[number].flush(20) == 0
        if rng.random() < 0.3:
            (producers[number].abort_transaction if rng.random() < 0.5 else producers[number].commit_transaction)(20)
            opened[number] = False
    for number in range(3):
        if opened[number]:
            producers[number].commit_transaction(20)
    rows = drained(testbed, topic, tmp_path / "run")
    assert rows == consumed(testbed, topic, 2)
    assert 0 < len(rows) < 720


def test_a_topic_that_grew_is_read_alike(testbed: Testbed, cluster: Cluster, topic: str, tmp_path: Path) -> None:
    rng = random.Random(3)
    _fill(testbed, topic, 2, rng)
    cluster.add_partitions(topic, 5)
    _fill(testbed, topic, 5, rng, **{"transactional.id": f"{topic}.a"})
    rows = drained(testbed, topic, tmp_path / "run")
    assert rows == consumed(testbed, topic, 5)
    assert {row[3] for row in rows} == set(range(5))


def test_a_topic_with_the_brokers_time_is_read_alike(testbed: Testbed, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topics({"test-append-time": 1}, **{"message.timestamp.type": "LogAppendTime"})
    try:
        _fill(testbed, "test-append-time", 1, random.Random(4))
        assert drained(testbed, "test-append-time", tmp_path / "run") == consumed(testbed, "test-append-time", 1)
    finally:
        cluster.delete_topics(["test-append-time"])


def test_a_large_record_is_read(testbed: Testbed, topic: str, tmp_path: Path) -> None:
    producer: Producer = Producer({"bootstrap.servers": testbed.direct_kafka, "message.max.bytes": 1_000_000})
    for sequence in range(12):
        producer.produce(topic, identity.encode(0, sequence, b'"%s"' % (b"x" * 900_000)), partition=0)
    assert producer.flush(20) == 0
    rows = drained(testbed, topic, tmp_path / "run")
    assert rows == consumed(testbed, topic, 2)
    assert len(rows) == 12
