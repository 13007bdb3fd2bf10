"""The step ``drain``: read everything that was delivered, as a read-committed reader sees it, to the end.

The end is each partition's high watermark *and* its last stable offset: while the second is behind the first, a transaction is open
and part of the output is not decided. A drain that cannot reach the end says so; LOST is then not known.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

from delivery import history, identity
from delivery.folder import RunFolder, write_atomically
from testbed.kafka import Cluster

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

FETCH = 10_000
FILE_RECORDS = 1_000_000
STABLE_S = 75.0
ORIGIN_HEADER = "streamproof"
log = logging.getLogger("chaos.drain")


def drain(folder: RunFolder, bootstrap: str, topic: str, timeout_s: float) -> dict[str, Any]:
    """Write ``delivered/`` and ``delivered/drain.json``; returns the latter. Repeating it starts over."""
    from confluent_kafka import Consumer, TopicPartition

    for old in folder.delivered.glob("*.parquet"):
        old.unlink()
    begun = time.monotonic()
    cluster = Cluster(bootstrap)
    ends, reason = _stable_end(cluster, topic, begun + min(timeout_s, STABLE_S))
    consumer: Consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"drain-{folder.name}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "fetch.queue.backoff.ms": 10,
            "log_level": 3,
        }
    )
    rows = _Rows(folder)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        reached = _read(consumer, ends, rows, begun + timeout_s)
    finally:
        consumer.close()
    rows.save()
    missing = sorted(set(ends) - reached)
    if missing and reason is None:
        reason = f"partitions {missing} were not read to their end within {timeout_s:.0f} s"
    seconds = time.monotonic() - begun
    found = {
        "complete": reason is None,
        "reason": reason,
        "end_offsets": {str(partition): end for partition, end in sorted(ends.items())},
        "records": rows.count,
        "seconds": round(seconds, 3),
        "records_per_s": round(rows.count / seconds, 1),
    }
    write_atomically(folder.drain, json.dumps(found))
    log.info("drained %d records in %.1f s%s", rows.count, seconds, "" if reason is None else f", not to the end: {reason}")
    return found


def _stable_end(cluster: Cluster, topic: str, deadline: float) -> tuple[dict[int, int], str | None]:
    """The output's end, once no open transaction lies before it; else the end that is stable, and why it is not the last."""
    while True:
        stable = cluster.end_offsets(topic, committed=True)
        last = cluster.end_offsets(topic)
        behind = sorted(partition for partition, end in last.items() if stable[partition] < end)
        if not behind:
            return last, None
        if time.monotonic() > deadline:
            return stable, f"an open transaction holds back partitions {behind}"
        time.sleep(0.1)


def _read(consumer: Consumer, ends: dict[int, int], rows: _Rows, deadline: float) -> set[int]:
    """Read until every partition has shown its end. Returns the partitions that did."""
    from confluent_kafka import KafkaError, KafkaException

    reached = {partition for partition, end in ends.items() if end == 0}
    while reached != set(ends) and time.monotonic() < deadline:
        for message in consumer.consume(FETCH, timeout=0.1):
            error = message.error()
            if error is None:
                rows.add(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                partition, offset = int(message.partition() or 0), int(message.offset() or 0)
                if offset >= ends[partition]:
                    reached.add(partition)
            else:
                raise KafkaException(error)
    return reached


class _Rows:
    """Delivered rows on their way to Parquet."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._file, self.count = folder, 0, 0
        self._columns: dict[str, list[Any]] = {name: [] for name in history.DELIVERED.names}

    def add(self, message: Message) -> None:
        found = identity.decode(message.value())
        start, batch, attempt = origin(message.headers())
        row = (
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
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)
        self.count += 1
        if self.count % FILE_RECORDS == 0:
            self.save()

    def save(self) -> None:
        if self._columns["offset"]:
            history.write_delivered(self._folder.delivered / f"{self._file:05d}.parquet", self._columns)
            self._file += 1
            self._columns = {name: [] for name in self._columns}


def origin(headers: Any) -> tuple[int | None, int | None, int | None]:
    """Driver start, batch and attempt from the header that a strategy may set: ``start.batch.attempt``."""
    for name, value in headers or ():
        if name == ORIGIN_HEADER and value is not None:
            start, batch, attempt = value.decode().split(".")
            return int(start), int(batch), int(attempt)
    return None, None, None
