"""Who still writes when the output is drained, against the real servers: what came is read, what may come is said, and no time lies."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from streamproof.engines.command.job import CommandJob
from streamproof.evidence import identity
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import Restored, RunCreated, TestbedTaken
from streamproof.evidence.second_reading import Stretch
from streamproof.jobs.job import Job
from streamproof.run import stages, writers
from streamproof.sinks import outputs
from streamproof.sinks.kafka.drain import drain
from streamproof.sinks.kafka.topic import KafkaTopic
from streamproof.sinks.postgres import drain as postgres_drain
from streamproof.sinks.postgres import tables as output
from streamproof.sinks.postgres.drain import PostgresTable
from streamproof.sinks.postgres.tables import Connection, Origin, Tables
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from tests.integration.test_postgres import records


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def _job(folder: RunFolder, testbed: Testbed, sink: str) -> Job:
    name = f"test-{uuid.uuid4().hex[:8]}"
    job = CommandJob(
        engine="command",
        name=name,
        folder=str(folder.path),
        sink=sink,
        bootstrap=testbed.driver_kafka,
        input_topic=f"{name}.in",
        output_topic=f"{name}.out",
        batch_records=10,
        transaction_timeout_ms=60_000,
        postgres=testbed.pipeline_postgres,
        command=["true"],
        cwd="/",
    )
    job.write()
    folder.journal.append(RunCreated(run=folder.name, seed=1))
    folder.journal.append(TestbedTaken(folder=testbed.folder))
    return job


@pytest.fixture
def job(testbed: Testbed, folder: RunFolder, request: pytest.FixtureRequest) -> Iterator[Job]:
    """A job with an empty output of the kind that the test names, deleted afterwards."""
    found = _job(folder, testbed, getattr(request, "param", "postgres"))
    outputs.of(found).create(found, testbed, 2)
    yield found
    outputs.of(found).delete(found, testbed)


def _drained(folder: RunFolder) -> list[tuple[int, int]]:
    rows = [row for path in folder.delivered.glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    return sorted((row["producer"], row["sequence"]) for row in rows)


def _produce(testbed: Testbed, topic: str, *sequences: int, at_ms: int = 0) -> None:
    producer = Producer({"bootstrap.servers": testbed.direct_kafka})
    for sequence in sequences:
        producer.produce(topic, identity.encode(0, sequence, b"{}"), partition=0, timestamp=at_ms)
    assert producer.flush(10) == 0


# --- Kafka ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("job", ["kafka"], indirect=True)
def test_a_time_that_the_job_sets_does_not_reach_the_output(testbed: Testbed, folder: RunFolder, job: Job) -> None:
    before = time.time()
    _produce(testbed, job.output_topic, 1, at_ms=1_357_000_000_000)
    drained = KafkaTopic().drain(folder, job, testbed, 30)
    (row,) = pq.read_table(next(folder.delivered.glob("*.parquet"))).to_pylist()
    assert before - 1 <= row["delivered_at"].timestamp() <= time.time() + 1
    (values,) = KafkaTopic().rows(job, testbed, folder.name, [Stretch(0, 0, drained["end_offsets"]["0"])], 30)
    assert before - 1 <= values[5] / 1000 <= time.time() + 1


@pytest.mark.parametrize("job", ["kafka"], indirect=True)
def test_what_is_written_while_the_output_is_drained_is_read_too_and_a_writer_without_end_is_named(
    testbed: Testbed, folder: RunFolder, job: Job
) -> None:
    done = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": testbed.direct_kafka, "linger.ms": 0})
        number = 0
        while not done.wait(0.002):
            producer.produce(job.output_topic, identity.encode(0, number, b"{}"), partition=0)
            producer.flush(5)
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        time.sleep(0.5)
        first = drain(folder, testbed.direct_kafka, job.output_topic, 30)
        time.sleep(0.2)
        assert writers.wrote_since(folder) is not None
    finally:
        done.set()
        thread.join(10)
    assert first["complete"] is False
    assert "still grew" in first["reason"]
    assert _drained(folder) == [(0, number) for number in range(first["records"])]
    assert drain(folder, testbed.direct_kafka, job.output_topic, 30)["complete"] is True
    assert writers.wrote_since(folder) is None


@pytest.mark.parametrize("job", ["kafka"], indirect=True)
def test_before_the_verdict_an_output_that_grew_is_drained_again(testbed: Testbed, cluster: Cluster, folder: RunFolder, job: Job) -> None:
    cluster.create_topics({job.input_topic: 1})
    try:
        _produce(testbed, job.output_topic, 1, 2)
        KafkaTopic().drain(folder, job, testbed, 30)
        _produce(testbed, job.output_topic, 2)
        assert "it ended at" in str(writers.wrote_since(folder))
        folder.experiment.write_text("name: late\nstrategy: checkpoint\nworkload: {source: synthetic, records: 1000}\nseed: 1\n")
        stages._look_again(folder)
        assert _drained(folder) == [(0, 1), (0, 2), (0, 2)]
        assert folder.read_json(folder.drain)["complete"] is True
    finally:
        cluster.delete_topics([job.input_topic])


@pytest.mark.parametrize("job", ["kafka"], indirect=True)
def test_an_output_that_was_given_back_is_not_looked_at_again(testbed: Testbed, folder: RunFolder, job: Job) -> None:
    KafkaTopic().drain(folder, job, testbed, 30)
    _produce(testbed, job.output_topic, 1)
    folder.journal.append(Restored())
    assert writers.wrote_since(folder) is None


# --- PostgreSQL -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def connection(testbed: Testbed, job: Job) -> Iterator[Connection]:
    with closing(output.connect(job.postgres)) as found:
        yield found


def _drain(folder: RunFolder, job: Job, testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr(postgres_drain, "DECIDED_S", 1.0)
    return PostgresTable().drain(folder, job, testbed, 30)


def test_a_transaction_that_is_prepared_under_any_name_keeps_the_drain_from_its_end(
    testbed: Testbed, folder: RunFolder, job: Job, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    output.append(connection, Tables(job.name), [records()], Origin(1, 0, 0))
    output.prepare(connection, f"foreign-{job.name}")
    drained = _drain(folder, job, testbed, monkeypatch)
    assert drained["complete"] is False
    assert f"foreign-{job.name}" in str(drained["reason"])
    assert _drained(folder) == []


def test_a_transaction_that_goes_on_is_ended_before_the_table_is_read(
    testbed: Testbed, folder: RunFolder, job: Job, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    output.append(connection, Tables(job.name), [records()], Origin(1, 0, 0))
    drained = _drain(folder, job, testbed, monkeypatch)
    assert (drained["complete"], drained["terminated"]) == (True, 1)
    with pytest.raises(psycopg.OperationalError):
        connection.commit()
    assert writers.wrote_since(folder) is None, "nothing came afterwards"


def test_a_transaction_that_commits_in_time_is_part_of_the_output(
    testbed: Testbed, folder: RunFolder, job: Job, connection: Connection
) -> None:
    output.append(connection, Tables(job.name), [records()], Origin(1, 0, 0))
    timer = threading.Timer(0.7, connection.commit)
    timer.start()
    drained = PostgresTable().drain(folder, job, testbed, 30)
    timer.join()
    assert (drained["complete"], drained["terminated"], drained["records"]) == (True, 0, 10)


def test_a_reader_keeps_nobody_waiting(testbed: Testbed, folder: RunFolder, job: Job, connection: Connection) -> None:
    connection.execute(Tables(job.name).named("SELECT count(*) FROM {delivered}"))
    begun = time.monotonic()
    assert PostgresTable().drain(folder, job, testbed, 30)["complete"] is True
    assert time.monotonic() - begun < postgres_drain.DECIDED_S
    connection.rollback()


def test_a_row_that_is_written_again_keeps_the_time_at_which_it_was_first_visible(
    testbed: Testbed, folder: RunFolder, job: Job, connection: Connection
) -> None:
    for attempt in range(3):
        output.upsert(connection, Tables(job.name), [records()], Origin(1, 0, attempt))
        connection.commit()
        if attempt == 0:
            first = time.time()
        time.sleep(0.6)
    PostgresTable().drain(folder, job, testbed, 30)
    rows = pq.read_table(next(folder.delivered.glob("*.parquet"))).to_pylist()
    assert {row["attempt"] for row in rows} == {2}
    assert all(abs(row["delivered_at"].timestamp() - first) < 0.5 for row in rows)


def test_a_late_update_of_the_same_rows_is_seen(testbed: Testbed, folder: RunFolder, job: Job, connection: Connection) -> None:
    output.upsert(connection, Tables(job.name), [records()], Origin(1, 0, 0))
    connection.commit()
    PostgresTable().drain(folder, job, testbed, 30)
    assert writers.wrote_since(folder) is None
    output.upsert(connection, Tables(job.name), [records()], Origin(1, 0, 1))
    connection.commit()
    assert writers.wrote_since(folder) is not None
