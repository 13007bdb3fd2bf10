"""A second reader of the output topic: a plain confluent-kafka consumer, which also verifies the CRC32C of each record batch.

It shares no code with the drain: neither the decoder of record batches, nor that of headers, nor the list of errors that pass.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streamproof.evidence.folder import EvidenceError
from streamproof.evidence.second_reading import Stretch
from streamproof.kafka.servers import librdkafka
from streamproof.sinks.sink import Row

FETCH = 10_000
HEADER, DIGITS = "streamproof", (9, 18, 9)
HOPELESS = (KafkaError._AUTO_OFFSET_RESET, KafkaError._BAD_MSG)
"""Offsets that are not there, and bytes that are damaged. Of other errors the consumer tries again by itself."""


def ends(bootstrap: str, topic: str, timeout_s: float) -> dict[int, int]:
    """Where each partition ends for a reader of committed records. Raises EvidenceError when there is no such topic."""
    with closing(_consumer(bootstrap, f"{topic}-ends")) as consumer:
        partitions = consumer.list_topics(topic, timeout=timeout_s).topics[topic].partitions
        if not partitions:
            raise EvidenceError(f"the second reader finds no topic {topic} at {bootstrap}")
        return {number: _end(consumer, TopicPartition(topic, number), timeout_s) for number in sorted(partitions)}


def _end(consumer: Consumer, place: TopicPartition, timeout_s: float) -> int:
    marks = consumer.get_watermark_offsets(place, timeout=timeout_s, cached=False)
    if marks is None:
        raise EvidenceError(f"the second reader got no answer about the end of {place.topic} {place.partition} within {timeout_s:.0f} s")
    return int(marks[1])


def rows(bootstrap: str, topic: str, run: str, stretches: Sequence[Stretch], timeout_s: float, header: str | None = None) -> Iterator[Row]:
    """The committed records of these stretches, each with the value of that ``header`` if one is asked for. Raises EvidenceError
    when they cannot be read in time."""
    deadline = time.monotonic() + timeout_s
    with closing(_consumer(bootstrap, f"sp-{run}-payloads")) as consumer:
        for some in _side_by_side(stretches):
            yield from _read(consumer, topic, some, deadline, header)


def _side_by_side(stretches: Sequence[Stretch]) -> Iterator[dict[int, Stretch]]:
    """The stretches in groups that are read at once, at most one of each partition."""
    by_partition = [list(mine) for _, mine in itertools.groupby(sorted(stretches), key=lambda stretch: stretch.partition)]
    for group in itertools.zip_longest(*by_partition):
        yield {stretch.partition: stretch for stretch in group if stretch is not None}


def _read(consumer: Consumer, topic: str, stretches: dict[int, Stretch], deadline: float, header: str | None) -> Iterator[Row]:
    consumer.assign([TopicPartition(topic, partition, stretch.since) for partition, stretch in stretches.items()])
    open_, last_error = dict(stretches), None
    while open_:
        if time.monotonic() > deadline:
            first = min(open_.values())
            raise EvidenceError(
                f"the second reader did not read {topic} {first.partition} from {first.since} to {first.until} in time"
                f"{f': {last_error}' if last_error is not None else ''}"
            )
        for message in consumer.consume(FETCH, timeout=0.1):
            error, partition, offset = message.error(), int(message.partition() or 0), int(message.offset() or 0)
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                last_error = error
                if error.fatal() or error.code() in HOPELESS:
                    raise KafkaException(error)
            elif partition in open_:
                until = open_[partition].until
                if error is None and offset < until:
                    start, batch, attempt = _origin(message.headers())
                    own = () if header is None else (_first(message.headers(), header),)
                    yield partition, offset, batch, attempt, start, message.timestamp()[1], message.key(), message.value(), *own
                if offset >= until or (error is None and offset == until - 1):  # the end of a partition is not reported while it grows
                    del open_[partition]  # it is not paused: librdkafka keeps a partition paused that is assigned again


def _first(headers: Any, name: str) -> bytes | None:
    return next((value for each, value in headers or () if each == name and value is not None), None)


def _origin(headers: Any) -> tuple[int | None, int | None, int | None]:
    """Start, batch and attempt that the first header of this name states in digits."""
    stated = (_first(headers, HEADER) or b"").split(b".")
    if [part.isdigit() and len(part) <= most for part, most in zip(stated, DIGITS, strict=False)] != [True] * 3 or len(stated) != 3:
        return None, None, None
    return int(stated[0]), int(stated[1]), int(stated[2])


def _consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            **librdkafka(bootstrap),
            "group.id": group,
            "isolation.level": "read_committed",
            "check.crcs": True,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": 16_384,
            "log_level": 2,
        }
    )
