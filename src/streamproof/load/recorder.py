"""Reads the newest records of a topic, of any Kafka, so that they can be sent again."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from streamproof.errors import BadInput
from streamproof.load.recorded import Recorded

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

ANSWER_S = 15.0
QUIET_S = 30.0
FETCH = 10_000
POLL_S = 0.5


def record(properties: Mapping[str, str], topic: str, most: int) -> list[Recorded]:
    """The newest ``most`` records of the topic, as far as they are committed, in the order of their times; of each partition in its own.

    ``properties`` are those of the client. Nothing is committed. Raises BadInput when Kafka does not answer, or has no such topic.
    """
    from confluent_kafka import Consumer, KafkaException

    settings = {"group.id": "streamproof-record", "isolation.level": "read_committed", "auto.offset.reset": "earliest", "log_level": 2}
    try:
        consumer = Consumer({**settings, **properties, "enable.auto.commit": False, "enable.partition.eof": True})
    except (KafkaException, ValueError) as error:
        raise BadInput(f"Kafka's client refuses its properties: {error}") from error
    try:
        ends = _ends(consumer, topic, properties)
        share = -(-most // max(len(ends), 1))
        records = _read(consumer, topic, {number: (max(begin, end - share), end) for number, (begin, end) in ends.items() if end > begin})
    except KafkaException as error:
        raise BadInput(f"Kafka at {properties.get('bootstrap.servers')}: topic {topic} cannot be read: {error}") from error
    finally:
        consumer.close()
    return by_time(records)[-most:]


def _ends(consumer: Consumer, topic: str, properties: Mapping[str, str]) -> dict[int, tuple[int, int]]:
    """Where each partition begins and ends now."""
    from confluent_kafka import TopicPartition

    described = consumer.list_topics(topic, timeout=ANSWER_S).topics[topic]
    if described.error is not None or not described.partitions:
        raise BadInput(f"Kafka at {properties.get('bootstrap.servers')} has no topic {topic}: {described.error}")
    ends = {}
    for number in described.partitions:
        begin, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=ANSWER_S)
        ends[number] = (begin, end)
    return ends


def _read(consumer: Consumer, topic: str, ranges: Mapping[int, tuple[int, int]]) -> dict[int, list[Recorded]]:
    """What lies in these ranges of offsets. An end may lie behind the last record: the marks of transactions take offsets too."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    records: dict[int, list[Recorded]] = {number: [] for number in ranges}
    missing = set(ranges)
    consumer.assign([TopicPartition(topic, number, begin) for number, (begin, _) in ranges.items()])
    heard = time.monotonic()
    while missing:
        for message in consumer.consume(FETCH, timeout=POLL_S):
            heard, number, error = time.monotonic(), _number(message), message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if error is None and number in missing and _offset(message) < ranges[number][1]:
                records[number].append(_recorded(message))
            if error is not None or _offset(message) >= ranges[number][1] - 1:
                missing.discard(number)
        if time.monotonic() > heard + QUIET_S:
            raise BadInput(
                f"topic {topic}: Kafka sent nothing for {QUIET_S:.0f} s, and partitions {sorted(missing)} are not read to their end"
            )
    return records


def by_time(records: Mapping[int, Iterable[Recorded]]) -> list[Recorded]:
    """The records of all partitions in the order of their times. One that is older than the record before it in its partition stays
    behind that."""
    return [record for _, _, record in heapq.merge(*(_timed(some) for some in records.values()), key=lambda timed: timed[:2])]


def _timed(records: Iterable[Recorded]) -> Iterator[tuple[int, int, Recorded]]:
    latest = 0
    for each in records:
        latest = max(latest, each.timestamp_ms or 0)
        yield latest, each.partition, each


def _recorded(message: Message) -> Recorded:
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

    kind, at_ms = message.timestamp()
    headers: Any = message.headers() or ()
    return Recorded(
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple((name, _bytes(value)) for name, value in headers),
        timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else at_ms,
        partition=_number(message),
        offset=_offset(message),
    )


def _number(message: Message) -> int:
    return int(message.partition() or 0)


def _offset(message: Message) -> int:
    return int(message.offset() or 0)


def _bytes(read: str | bytes | None) -> bytes | None:
    return read.encode() if isinstance(read, str) else read
