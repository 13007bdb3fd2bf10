"""The output topic, and its drain: everything that was delivered, as a read-committed reader sees it, to the end.

The end is each partition's high watermark *and* its last stable offset: while the second is behind the first, a transaction is open
and part of the output is not decided. A drain that cannot reach the end says so; LOST is then not known.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from chaos.outputs.delivered import Delivered
from chaos.outputs.fetch import Fetcher, Piece
from chaos.outputs.record_batches import Batch, committed, decode, texts
from delivery import history, identities
from delivery.columns import array
from delivery.folder import EvidenceError, RunFolder
from delivery.identities import BEFORE
from delivery.recovery import Stamps
from pipelines.job import Job
from testbed.embedded import Testbed
from testbed.kafka import Cluster

FETCH = 10_000
DECODERS = 2
IN_MEMORY = 8  # pieces that wait to be decoded, or to be written
LONGEST_ORIGIN = 38
STABLE_S = 75.0
ORIGIN_HEADER = "streamproof"
_ORIGIN = re.compile(rb"(\d{1,9})\.(\d{1,18})\.(\d{1,9})")  # each fits its column


def drain(folder: RunFolder, bootstrap: str, topic: str, timeout_s: float) -> dict[str, Any]:
    """Write ``delivered/`` and ``delivered/drain.json``; returns the latter.

    Repeating it starts over; what an earlier one found is kept until all of the new is there. Raises EvidenceError when there is no
    such topic.
    """
    begun = time.monotonic()
    cluster = Cluster(bootstrap)
    ends, reason = _stable_end(cluster, topic, begun + min(timeout_s, STABLE_S))
    delivered = Delivered(folder)
    missing = _read(cluster, topic, ends, delivered, begun + timeout_s)
    if missing and reason is None:
        reason = f"partitions {missing} were not read to their end within {timeout_s:.0f} s"
    return delivered.settle(reason, ends, Stamps.WRITTEN)


def _stable_end(cluster: Cluster, topic: str, deadline: float) -> tuple[dict[int, int], str | None]:
    """The output's end, once no open transaction lies before it; else the end that is stable, and why it is not the last.

    Raises EvidenceError when there is no such topic: what is not there cannot be read to its end.
    """
    while True:
        stable = cluster.end_offsets(topic, committed=True)
        last = cluster.end_offsets(topic)
        if not stable or not last:
            raise EvidenceError(
                f"kafka at {cluster.bootstrap} has no topic {topic}: the run was not prepared, or was restored already. "
                "What was drained before is kept."
            )
        behind = sorted(partition for partition, end in last.items() if stable[partition] < end)
        if not behind:
            return last, None
        if time.monotonic() > deadline:
            return stable, f"an open transaction holds back partitions {behind}"
        time.sleep(0.1)


def _read(cluster: Cluster, topic: str, ends: Mapping[int, int], delivered: Delivered, deadline: float) -> list[int]:
    """Read every partition to its end. Returns those that were not.

    While the next answer is on its way the last ones are decoded; their rows are written in the order in which they came.
    """
    with Fetcher(cluster, topic, ends) as fetcher, ThreadPoolExecutor(DECODERS) as decoders, ThreadPoolExecutor(1) as writer:
        decoding: deque[Future[dict[str, pa.Array]]] = deque()
        writing: deque[Future[None]] = deque()
        for piece in fetcher.pieces(deadline):
            batches, behind = committed(piece.data.data[BEFORE : piece.end], piece.aborted)
            if behind is not None:
                fetcher.advance(piece.partition, behind)
            if batches:
                decoding.append(decoders.submit(_columns, piece, batches, ends[piece.partition]))
            while len(decoding) > IN_MEMORY:
                writing.append(writer.submit(delivered.write, decoding.popleft().result()))
            while len(writing) > IN_MEMORY:
                writing.popleft().result()
        writing.extend(writer.submit(delivered.write, columns.result()) for columns in decoding)
        for written in writing:
            written.result()
        return fetcher.unread()


def _columns(piece: Piece, batches: Sequence[Batch], end: int) -> dict[str, pa.Array]:
    """The rows of ``delivered/`` for what lies before ``end``."""
    records = decode(piece.data, batches, ORIGIN_HEADER.encode())
    if records.offset[-1] >= end:
        records = records.some(records.offset < end)
    found = identities.decode(records.data, records.value, records.value_size)
    said, of = texts(records.data, records.header, records.header_size, LONGEST_ORIGIN)
    origins = [[-1 if part is None else part for part in _origin(text)] for text in said or [None]]
    of_run = dict(zip(("start", "batch", "attempt"), zip(*origins, strict=True), strict=True))
    return {
        "producer": array(found.producer, ~found.found),
        "sequence": array(found.sequence, ~found.found),
        "crc": array(found.crc, ~found.intact),
        "partition": array(np.full(len(records), piece.partition, np.int32)),
        "offset": array(records.offset),
        **{name: _spread(of_run[name], of, kind) for name, kind in (("start", np.int32), ("batch", np.int64), ("attempt", np.int32))},
        "delivered_at": array(records.timestamp_ms).cast(history.DELIVERED.field("delivered_at").type),
    }


def _spread(of_run: Sequence[int], run: np.ndarray, kind: Any) -> pa.Array:
    """What is known of runs of records, for each record; -1 is null."""
    values = np.array(of_run, kind)[run]
    return array(values, values < 0 if min(of_run) < 0 else None)


def origin(headers: Any) -> tuple[int | None, int | None, int | None]:
    """Driver start, batch and attempt from the header that a strategy may set: ``start.batch.attempt``. Another's header says nothing."""
    for name, value in headers or ():
        if name == ORIGIN_HEADER and value is not None:
            return _origin(value)
    return None, None, None


def _origin(value: bytes | None) -> tuple[int | None, int | None, int | None]:
    found = _ORIGIN.fullmatch(value) if value is not None else None
    if found is None:
        return None, None, None
    start, batch, attempt = found.groups()
    return int(start), int(batch), int(attempt)


class KafkaReader:
    """A read-committed consumer of the output topic; it counts records by the batch that their header names."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._counts: dict[int, int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{topic}-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
                "log_level": 2,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def visible(self) -> dict[int, int]:
        while messages := self._consumer.consume(FETCH, timeout=0.01):
            for message in messages:
                batch = None if message.error() else origin(message.headers())[1]
                if batch is not None:
                    self._counts[batch] = self._counts.get(batch, 0) + 1
        return self._counts

    def close(self) -> None:
        self._consumer.close()


class KafkaOutput:
    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        Cluster(testbed.direct_kafka).create_topics({job.output_topic: partitions})

    def drain(self, folder: RunFolder, job: Job, testbed: Testbed, timeout_s: float) -> dict[str, Any]:
        return drain(folder, testbed.direct_kafka, job.output_topic, timeout_s)

    def reader(self, job: Job, testbed: Testbed) -> KafkaReader:
        partitions = Cluster(testbed.direct_kafka).partitions(job.output_topic)
        return KafkaReader(testbed.direct_kafka, job.output_topic, partitions)

    def delete(self, job: Job, testbed: Testbed) -> None:
        Cluster(testbed.direct_kafka).delete_topics([job.output_topic])
