"""The second reader of a real topic and a real table reads what the drain reads, whole or in stretches, and asks for ends of its own."""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from streamproof.engines.command.job import CommandJob
from streamproof.evidence import identity
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.second_reading import SecondReading, Stretch, sample
from streamproof.sinks import outputs, second_reading
from streamproof.sinks.kafka import second_reader
from streamproof.sinks.postgres import tables as postgres
from streamproof.sinks.postgres.tables import Tables
from streamproof.testbed.embedded import Testbed

HEADERS = [
    [("streamproof", b"1.2.3")],
    [("other", b"9.9.9"), ("streamproof", b"4.5.6"), ("streamproof", b"7.8.9")],
    [("streamproof", None), ("streamproof", b"4.5.6")],
    [("streamproof", b"1.2")],
    [("streamproof", b"1.2.3.4")],
    [("streamproof", b"-1.2.3")],
    [("streamproof", b"1.2.")],
    [("streamproof", b"1234567890.2.3")],
    [("streamproof", "١.2.3".encode())],
    [],
]
Place = tuple[int, int]


@pytest.fixture(params=["kafka", "postgres"])
def job(testbed: Testbed, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[CommandJob]:
    """A job with an output of 30 records or more, deleted afterwards."""
    name, folder = f"test-{uuid.uuid4().hex[:8]}", RunFolder.create(tmp_path / "run")
    places = {"input_topic": f"{name}.in", "output_topic": f"{name}.out", "folder": str(folder.path), "cwd": "/"}
    addresses = {"bootstrap": testbed.driver_kafka, "postgres": testbed.pipeline_postgres}
    found = CommandJob(
        engine="command",
        name=name,
        sink=request.param,
        batch_records=10,
        transaction_timeout_ms=60_000,
        command=["true"],
        **places,
        **addresses,
    )
    outputs.of(found).create(found, testbed, 2)
    if request.param == "kafka":
        _write_topic(testbed, found.output_topic)
    else:
        _write_table(testbed, found)
    yield found
    outputs.of(found).delete(found, testbed)


def _write_topic(testbed: Testbed, topic: str) -> None:
    producer = Producer({"bootstrap.servers": testbed.direct_kafka, "transactional.id": topic})
    producer.init_transactions(20)
    for number in range(6):
        producer.begin_transaction()
        for sequence, headers in enumerate(HEADERS):
            producer.produce(topic, identity.encode(number, sequence, b"{}"), b"k", partition=sequence % 2, headers=headers)
        producer.flush(10)
        producer.abort_transaction(20) if number % 3 == 1 else producer.commit_transaction(20)


def _write_table(testbed: Testbed, job: CommandJob) -> None:
    insert = "INSERT INTO {delivered} (source_partition, source_offset, start, batch, attempt, key, value) VALUES (0, %s, 1, 2, 3, %s, %s)"
    with closing(postgres.connect(testbed.direct_postgres, autocommit=True)) as connection:
        for number in range(30):
            connection.execute(Tables(job.name).named(insert), [number, b"k", identity.encode(0, number, b"{}")])


def _compared(path: Path) -> dict[Place, tuple[object, ...]]:
    """Of each record its origin and its time."""
    rows = [row for file in sorted(path.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    found = {(row["partition"], row["offset"]): tuple(row[name] for name in ("start", "batch", "attempt", "delivered_at")) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("most", [1000, 20])
def test_the_second_reader_reads_what_the_drain_reads(
    testbed: Testbed, job: CommandJob, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_reading, "MOST_RECORDS", most)
    monkeypatch.setattr(second_reading, "sample", functools.partial(sample, size=3))  # several stretches of each partition
    folder, sink = RunFolder(Path(job.folder)), outputs.of(job)
    drained = sink.drain(folder, job, testbed, 30)
    second_reading.read_again(folder, job, testbed, drained, 7, 60)
    reading = SecondReading.read(folder)
    assert reading is not None
    assert {str(partition): end for partition, end in reading.ends.items()} == drained["end_offsets"]
    by_drain, again = _compared(folder.delivered), _compared(folder.delivered_again)
    within = {
        place: row
        for place, row in by_drain.items()
        if any(one.partition == place[0] and one.since <= place[1] < one.until for one in reading.stretches)
    }
    assert again == within
    assert reading.records == len(within)
    assert reading.whole is (most == 1000)
    assert len(within) == len(by_drain) if reading.whole else 0 < len(within) < len(by_drain)


@pytest.mark.parametrize("job", ["kafka"], indirect=True)
def test_stretches_that_are_not_there_are_an_error_at_once_or_in_time(testbed: Testbed, job: CommandJob) -> None:
    begun = time.monotonic()
    with pytest.raises(EvidenceError, match=r"did not read .* 0 from 0 to 5000 in time"):
        list(second_reader.rows(testbed.direct_kafka, job.output_topic, "run", [Stretch(0, 0, 5000)], 3))
    with pytest.raises(EvidenceError, match="finds no topic"):
        second_reader.ends(testbed.direct_kafka, "no-such-topic", 5)
    assert time.monotonic() - begun < 20
