"""Outputs of a user's own, on the real servers: what the workload puts into the input is found in the output, by both readers."""

from __future__ import annotations

import csv
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from streamproof.engines.command.environment import values
from streamproof.engines.command.job import CommandJob
from streamproof.evidence import histories, locations
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.locations import Kind, Location
from streamproof.load.workload import Sender
from streamproof.sinks import outputs, second_reading
from streamproof.sinks.postgres import tables as postgres
from streamproof.suites.expectations import database
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError

COUNT = 40
TIMEOUT_S = 30.0
PLACES = {
    "header": Location(Kind.HEADER, ("order-id",), True),
    "key": Location(Kind.KEY, (), True),
    "json": Location(Kind.JSON, ("/order/id",), False),
}
DDL = 'CREATE TABLE "Orders" (id uuid, amount double precision, note text)'


def _job(testbed: Testbed, folder: RunFolder, sink: str, location: Location, **output: Any) -> CommandJob:
    name = f"test-{uuid.uuid4().hex[:8]}"
    return CommandJob(
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
        delivers_identity=location.to_dict(),
        reads_identity=location.to_dict(),
        output=output,
    )


def _created(testbed: Testbed, job: CommandJob) -> Iterator[CommandJob]:
    outputs.of(job).create(job, testbed, 2)
    try:
        yield job
    finally:
        outputs.of(job).delete(job, testbed)


def _both(folder: RunFolder, job: CommandJob, testbed: Testbed) -> tuple[list[Any], list[Any], list[Any]]:
    """The identities that the drain found, those that the second judge found, and those on which they differ."""
    drained = outputs.of(job).drain(folder, job, testbed, TIMEOUT_S)
    assert (drained["complete"], drained["end"]) == (True, outputs.of(job).end(job, testbed))
    second_reading.read_again(folder, job, testbed, drained, 1, TIMEOUT_S)
    found = histories.read_delivered(folder)
    spec = {"guarantee": "exactly-once", "promises": [], "expected": [], "recover_within_s": None, "computation": None}
    with database.building(folder.path, spec={**spec, "location": job.location_delivered.to_dict()}) as connection:
        again = connection.execute("SELECT producer, sequence FROM reread ORDER BY ALL").fetchall()
        misread = connection.execute("FROM misread UNION ALL BY NAME FROM ends_differ").fetchall()
    return sorted(zip(found.producer.tolist(), found.sequence.tolist(), strict=True)), again, misread


def _followed(job: CommandJob, testbed: Testbed, count: int) -> set[tuple[int, int]]:
    """The identities that are seen in the output while the job writes it, once there are so many."""
    found: set[tuple[int, int]] = set()
    deadline = time.monotonic() + TIMEOUT_S
    with closing(outputs.of(job).follower(job, testbed)) as follower:
        while len(found) < count and time.monotonic() < deadline:
            found |= {identity for identity in follower.identities() if identity is not None}
    return found


def _read(testbed: Testbed, job: CommandJob) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": testbed.direct_kafka, "group.id": job.name, "enable.auto.commit": False})
    with closing(consumer):
        ends = Cluster(testbed.direct_kafka).end_offsets(job.input_topic)
        consumer.assign([TopicPartition(job.input_topic, partition, 0) for partition in ends])
        messages: list[Message] = []
        while len(messages) < COUNT and (some := consumer.consume(COUNT, timeout=TIMEOUT_S)):
            messages += some
    return messages


def _pass_on(testbed: Testbed, job: CommandJob) -> None:
    """What a job does that copies each record with its key and headers."""
    producer = Producer({"bootstrap.servers": testbed.direct_kafka})
    for message in _read(testbed, job):
        producer.produce(job.output_topic, message.value(), message.key(), headers=message.headers())
    assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.parametrize("name", PLACES)
def test_what_is_sent_is_found_in_the_topic_where_the_job_keeps_it(name: str, testbed: Testbed, tmp_path: Path) -> None:
    folder, location = RunFolder.create(tmp_path / "run"), PLACES[name]
    for job in _created(testbed, _job(testbed, folder, "kafka", location)):
        cluster = Cluster(testbed.direct_kafka)
        cluster.create_topics({job.input_topic: 2})
        sender = Sender(folder, testbed.direct_kafka, job.input_topic, location, location.whole)
        sender.send(0, [(f"k{number}", b'{"n":%d}' % number) for number in range(COUNT)], 2)
        sender.save()
        _pass_on(testbed, job)
        cluster.delete_topics([job.input_topic])
        assert _followed(job, testbed, COUNT) == {(0, number) for number in range(COUNT)}
        drained, again, misread = _both(folder, job, testbed)
        assert drained == again == [(0, number) for number in range(COUNT)]
        assert misread == []
        sent, delivered = histories.read_sent(folder), histories.read_delivered(folder)
        assert sorted(delivered.crc.tolist()) == sorted(sent.crc.tolist())
        assert (set(sent.crc.tolist()) == {0}) is not location.whole


@pytest.fixture
def table(testbed: Testbed, tmp_path: Path) -> Iterator[CommandJob]:
    folder, location = RunFolder.create(tmp_path / "run"), Location(Kind.COLUMNS, ("id",), False)
    yield from _created(testbed, _job(testbed, folder, "postgres_rows", location, table="Orders", ddl=DDL))


def _connected(testbed: Testbed, job: CommandJob) -> psycopg.Connection[Any]:
    """As the job connects: by the string that it is given."""
    return psycopg.connect(values(job, testbed)["postgres"], autocommit=True)


def test_rows_of_a_users_own_table_are_found_whatever_else_they_hold(table: CommandJob, testbed: Testbed) -> None:
    with closing(_connected(testbed, table)) as connection:
        for number in range(COUNT):
            row = (locations.text(0, number), float("nan"), 'a\\b"ä')
            connection.execute('INSERT INTO "Orders" VALUES (%s, %s, %s)', row)
        connection.execute('INSERT INTO "Orders" SELECT * FROM "Orders" WHERE id = %s', [locations.text(0, 5)])
        connection.execute('DELETE FROM "Orders" WHERE id = %s', [locations.text(0, 7)])
        connection.execute('UPDATE "Orders" SET note = NULL WHERE id = %s', [locations.text(0, 9)])
        connection.execute('INSERT INTO "Orders" VALUES (NULL), (%s)', [str(uuid.UUID(int=1))])
    drained, again, misread = _both(table.run, table, testbed)
    identified = [(0, number) for number in sorted([*range(COUNT), 5]) if number != 7]
    assert _followed(table, testbed, COUNT - 1) == set(identified)
    assert drained == [(-1, -1), (-1, -1), *identified]
    assert again == [*identified, (None, None), (None, None)]
    assert misread == []


def test_a_transaction_that_is_open_when_the_table_is_drained_is_ended(table: CommandJob, testbed: Testbed) -> None:
    with closing(_connected(testbed, table)) as connection:
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE ledger (batch bigint)")
        connection.execute('INSERT INTO "Orders" (id) VALUES (%s)', [locations.text(0, 1)])
        drained = outputs.of(table).drain(table.run, table, testbed, TIMEOUT_S)
    assert (drained["complete"], drained["records"], drained["terminated"]) == (True, 0, 1)


def test_the_schema_goes_with_the_run_and_all_that_the_job_made_in_it(table: CommandJob, testbed: Testbed) -> None:
    schema = values(table, testbed)["schema"]
    with closing(_connected(testbed, table)) as connection:
        connection.execute("CREATE TABLE ledger (batch bigint)")
    outputs.of(table).delete(table, testbed)
    outputs.of(table).delete(table, testbed)
    with closing(postgres.connect(testbed.direct_postgres)) as connection:
        assert connection.execute("SELECT to_regnamespace(%s)", [schema]).fetchall() == [(None,)]
    with pytest.raises(EvidenceError, match=f"the job's schema {schema} has no table Orders: .*tables there: none"):
        outputs.of(table).drain(table.run, table, testbed, TIMEOUT_S)


@pytest.mark.parametrize(
    ("ddl", "kind", "says"),
    [
        ("CREATE TABLE elsewhere (id text)", EvidenceError, "has no table Orders: nobody made it, .*; tables there: elsewhere"),
        ('CREATE TABLE "Orders" (order_id text, n int)', EvidenceError, "Orders has no column id for the identity; it has: order_id, n"),
        ('CREATE VIEW "Orders" AS SELECT 1 AS id', EvidenceError, "Orders is a view, or a table in partitions"),
        ("CREATE TABEL x", TestbedError, "delivers.postgres.ddl: PostgreSQL refuses it: syntax error"),
    ],
)
def test_a_table_that_is_not_as_described_is_named_before_the_job_starts(
    ddl: str, kind: type[Exception], says: str, testbed: Testbed, tmp_path: Path
) -> None:
    location = Location(Kind.COLUMNS, ("id",), False)
    job = _job(testbed, RunFolder.create(tmp_path / "run"), "postgres_rows", location, table="Orders", ddl=ddl)
    try:
        with pytest.raises(kind, match=says):
            outputs.of(job).create(job, testbed, 2)
    finally:
        outputs.of(job).delete(job, testbed)


@pytest.mark.parametrize("escape", ['"', "\\"])
def test_rows_of_csv_are_found_as_a_library_writes_what_was_sent(escape: str, testbed: Testbed, tmp_path: Path) -> None:
    folder, location = RunFolder.create(tmp_path / "run"), Location(Kind.COLUMNS, ("id",), False)
    output = {"path": "orders", "format": "csv", "escape": escape, "spark_log": False}
    for job in _created(testbed, _job(testbed, folder, "file_rows", location, **output)):
        cluster = Cluster(testbed.direct_kafka)
        cluster.create_topics({job.input_topic: 2})
        sender = Sender(folder, testbed.direct_kafka, job.input_topic, location, location.whole)
        sender.send(0, [(f"k{number}", b'{"note":"a \\"quoted\\" text,\\nof %d"}' % number) for number in range(COUNT)], 2)
        sender.save()
        rows = [json.loads(message.value() or b"") for message in _read(testbed, job)]
        (job.files / "orders").mkdir()
        with (job.files / "orders" / "part-0.csv").open("w", newline="") as file:
            quoting = {"doublequote": escape == '"', "escapechar": escape}
            writer = csv.DictWriter(file, ["note", "id"], lineterminator="\n", **quoting)
            writer.writeheader()
            writer.writerows(rows)
        cluster.delete_topics([job.input_topic])
        drained, again, misread = _both(folder, job, testbed)
        assert drained == again == [(0, number) for number in range(COUNT)]
        assert misread == []


def test_no_secret_is_in_the_connection_strings(table: CommandJob, testbed: Testbed) -> None:
    password = json.dumps(Path(testbed.folder, "postgres.pass").read_text().strip().rsplit(":", 1)[-1])
    known = values(table, testbed)
    assert password.strip('"') not in "".join(known.values())
