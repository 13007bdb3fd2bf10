"""What the delivered records say, kept beside ``delivered/`` for a run that is judged by it: read from the same output, to the same end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pyarrow.parquet as pq

from streamproof.engines.spark import strategies
from streamproof.engines.spark.job import Job
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.payloads import PAYLOADS, write_payloads
from streamproof.kafka.asking import retriable
from streamproof.sinks import origin
from streamproof.sinks.files.folder import logged_files
from streamproof.sinks.postgres import tables as postgres
from streamproof.sinks.postgres.tables import Tables
from streamproof.sinks.sink import Sink
from streamproof.testbed.embedded import Testbed

FETCH = 10_000
FILE_RECORDS = 200_000
Row = tuple[Any, ...]


def keep(folder: RunFolder, job: Job, testbed: Testbed, drained: dict[str, Any], timeout_s: float) -> None:
    """Write ``payloads/``. ``drained`` is what the drain said: its ends are these ends. Repeating it starts over."""
    shutil.rmtree(folder.payloads, ignore_errors=True)
    folder.payloads.mkdir()
    sink = strategies.get(job.strategy).sink
    if sink is Sink.KAFKA:
        rows = _of_topic(testbed.direct_kafka, job.output_topic, folder.name, drained["end_offsets"], timeout_s)
    elif sink is Sink.POSTGRES:
        rows = _of_table(testbed.direct_postgres, Tables(job.query))
    else:
        rows = _of_files(job)
    for number, some in enumerate(_parts(rows)):
        write_payloads(folder, number, {name: [row[at] for row in some] for at, name in enumerate(PAYLOADS.names)})


def _parts(rows: Iterable[Row]) -> Iterator[list[Row]]:
    part: list[Row] = []
    for row in rows:
        part.append(row)
        if len(part) == FILE_RECORDS:
            yield part
            part = []
    yield part


def _of_topic(bootstrap: str, topic: str, run: str, ends: dict[str, int], timeout_s: float) -> Iterator[Row]:
    """The committed records of a topic. Raises EvidenceError when they cannot be read to the drain's end."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": f"payloads-{run}", "isolation.level": "read_committed", "log_level": 2}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "error", "enable.partition.eof": True})
    open_, deadline = {int(partition) for partition, end in ends.items() if end > 0}, time.monotonic() + timeout_s
    with closing(consumer):
        consumer.assign([TopicPartition(topic, partition, 0) for partition in sorted(open_)])
        while open_:
            if time.monotonic() > deadline:
                raise EvidenceError(f"the values of {topic} were not read to their end within {timeout_s:.0f} s")
            for message in consumer.consume(FETCH, timeout=0.1):
                error = message.error()
                if error is None:
                    start, batch, attempt = origin.decode(message.headers())
                    at = message.timestamp()[1]
                    yield message.partition(), message.offset(), batch, attempt, start, at, message.key(), message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    if (message.offset() or 0) >= ends[str(message.partition())]:
                        open_.discard(int(message.partition() or 0))
                elif not retriable(error.code()):  # what is retriable the consumer tells and repeats itself
                    raise KafkaException(error)


_ROWS = """
    SELECT 0, position, batch, attempt, start,
        floor(extract(epoch FROM coalesce(pg_xact_commit_timestamp(xmin), written_at)) * 1000)::bigint, key, value
    FROM {delivered} ORDER BY position
"""


def _of_table(conninfo: str, tables: Tables) -> Iterator[Row]:
    with closing(postgres.connect(conninfo, autocommit=True)) as connection, connection.cursor(binary=True) as cursor:
        yield from cursor.execute(tables.named(_ROWS))


def _of_files(job: Job) -> Iterator[Row]:
    honours_log = getattr(strategies.get(job.strategy), "honours_log", True)
    files = logged_files(job.files) if honours_log else sorted(job.files.glob("*.parquet"))
    for number, path in enumerate(files):
        table, at = pq.read_table(path, columns=["key", "value"]), int(path.stat().st_mtime * 1000)
        for offset, (key, value) in enumerate(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)):
            yield number, offset, None, None, None, at, key, value
