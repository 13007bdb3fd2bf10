"""The workload: records with an identity, sent with an outcome each.

``flights`` replays real flights of 2013 as JSON events with their own event times; the seed picks where in the year it starts.
``synthetic`` makes seeded events. Both are the same, byte for byte, for the same seed. A file of the user's own is sent as it is.

The intent to send a range of sequences is written down before the first of them is sent, and the outcomes of a chunk as soon as they are
known. Records of an intent without an outcome (the generator was killed) are INDETERMINATE: they may be in the topic, nobody knows.
"""

from __future__ import annotations

import io
import itertools
import json
import logging
import random
import time
import zlib
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamproof.evidence import histories, sent_stream
from streamproof.evidence.folder import RunFolder, append_json_line, read_json_lines
from streamproof.evidence.locations import ENVELOPE, Location
from streamproof.evidence.made_anew import MadeAnew
from streamproof.evidence.outcome import Outcome
from streamproof.evidence.sent_stream import SentStream
from streamproof.kafka.asking import UNKNOWN_TOPIC_OR_PARTITION, asked
from streamproof.kafka.servers import librdkafka
from streamproof.load import files, nycflights
from streamproof.load.files import Event
from streamproof.load.gate import Orders, chosen, hot
from streamproof.load.placing import placed
from streamproof.load.recorded import Recorded
from streamproof.load.spec import Source, Workload
from streamproof.testbed.process import TestbedError

if TYPE_CHECKING:
    from confluent_kafka import Producer

MAX_CHUNK = 500
LATE_CHUNKS = 2
FILE_RECORDS = 50_000
FLUSH_S = 30.0
METADATA_S = 10.0
PATIENCE_S = 30.0
DELIVERY_TIMEOUT_MS = 30_000
log = logging.getLogger("streamproof.load.workload")

Numbered = list[tuple[int, Event]]


def events(workload: Workload, seed: int) -> Iterator[Event]:
    """The workload's ``records`` events as (key, payload as JSON)."""
    if workload.file is not None:
        file = workload.file
        return itertools.islice(files.events(file.found, file.key, file.schema_file, seed), workload.records)
    source = _flights(seed) if workload.source is Source.FLIGHTS else _synthetic(seed)
    return itertools.islice(source, workload.records)


_COLUMNS = ["time_hour", "carrier", "flight", "tailnum", "origin", "dest", "dep_time", "dep_delay", "arr_delay", "air_time", "distance"]


def _flights(seed: int) -> Iterator[Event]:
    table = _flight_table()
    begin = random.Random(f"flights:{seed}").randrange(len(table))
    for number in range(0, len(table), 10_000):
        indices = [(begin + at) % len(table) for at in range(number, min(number + 10_000, len(table)))]
        for event in table.take(indices).to_pylist():
            yield f"{event['carrier']}{event['flight']}", json.dumps(event, separators=(",", ":")).encode()


def _flight_table() -> pa.Table:
    import pyarrow.csv

    data = nycflights.read("flights.csv", ", or use the source 'synthetic'")
    types = {"time_hour": pa.string()}
    options = pyarrow.csv.ConvertOptions(include_columns=_COLUMNS, column_types=types, null_values=["NA", ""], strings_can_be_null=True)
    return pyarrow.csv.read_csv(io.BytesIO(data), convert_options=options)


def _synthetic(seed: int) -> Iterator[Event]:
    rng = random.Random(f"synthetic:{seed}")
    for number in itertools.count():
        bits = rng.getrandbits(64)
        yield f"k{bits % 1000}", b'{"n":%d,"amount":%d,"at":"2026-01-01T00:%02d:%02dZ"}' % (number, bits >> 40, bits % 60, (bits >> 8) % 60)


class Sender:
    """Sends events to a topic and keeps what became of each.

    ``reached`` is the sequence up to which a sender before this one meant to send: what it left unsettled is INDETERMINATE, and sending
    it again would put the same events into the topic twice, under two identities. ``location`` is where the job reads a record's identity,
    ``whole`` whether it delivers key and value as they are.
    """

    def __init__(self, folder: RunFolder, bootstrap: str, topic: str, location: Location = ENVELOPE, whole: bool = True) -> None:
        from confluent_kafka import Producer

        self._folder, self._topic, self._location, self._whole = folder, topic, location, whole
        self._producer: Producer = Producer(
            {
                **librdkafka(bootstrap),
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 2,
            }
        )
        earlier = intended(folder.intents)
        # A repeated stage must not reuse an identity: it sends as the next producer. What is sent twice has an identity each time, the
        # second of the producer behind this one.
        self.number = len({intent["producer"] for intent in earlier})
        self.reached = max((intent["first"] + intent["count"] for intent in earlier), default=0)
        sent_stream.fold_all(folder.sent)
        self._logged: Counter[Outcome] = Counter()
        self._rows: list[histories.SentRow] = []
        """Records whose outcome is not written down yet."""
        self._file = len(histories.files(folder.sent))
        self._stream: SentStream | None = None
        self._partitions: int | None = None
        self._orders = Orders(folder)
        self._held: deque[Numbered] = deque()

    def partitions(self) -> int:
        """How many partitions the topic has; as many as before while Kafka does not answer. Before the first answer it is asked again."""
        from confluent_kafka import KafkaException

        try:
            self._partitions = asked(self._listed_partitions, PATIENCE_S if self._partitions is None else 0) or self._partitions
        except KafkaException as error:
            if self._partitions is None:
                raise TestbedError(f"topic {self._topic}: Kafka does not say how many partitions it has ({error})") from error
        if not self._partitions:
            raise TestbedError(f"there is no topic {self._topic} to send to: was the run prepared?")
        return self._partitions

    def _listed_partitions(self) -> int:
        """How many partitions a broker lists, 0 when it knows no such topic."""
        from confluent_kafka import KafkaException

        topic = self._producer.list_topics(self._topic, timeout=METADATA_S).topics[self._topic]
        if topic.error is not None and topic.error.code() != UNKNOWN_TOPIC_OR_PARTITION:
            raise KafkaException(topic.error)
        return len(topic.partitions)

    def send(self, first: int, chunk: list[Event], partitions: int) -> None:
        """Send a chunk, as a fault may have ordered, and wait for its outcomes. Partitions are chosen by the key's crc32."""
        orders, numbered = self._orders.active(), list(enumerate(chunk, first))
        if share := orders.get("hot_share"):
            numbered = [(sequence, _under_a_hot_key(event, sequence, share)) for sequence, event in numbered]
        late_share = orders.get("late_share", 0)
        self._intend(self.number, first, len(chunk))
        self._send(self.number, [event for event in numbered if not chosen(event[0], late_share)], partitions)
        self._held.append([event for event in numbered if chosen(event[0], late_share)])
        self.send_late(partitions, LATE_CHUNKS if late_share else 0)
        if orders.get("twice"):
            self._intend(self.number + 1, first, len(chunk))
            self._send(self.number + 1, numbered, partitions)
        if self._stream is not None and self._stream.records >= FILE_RECORDS:
            self.save()

    def send_late(self, partitions: int, keep: int = 0) -> None:
        """Send what was held back, but of the last ``keep`` chunks."""
        while len(self._held) > keep:
            self._send(self.number, self._held.popleft(), partitions)

    def _intend(self, producer: int, first: int, count: int) -> None:
        append_json_line(self._folder.intents, {"producer": producer, "first": first, "count": count})

    def _send(self, producer: int, numbered: Numbered, partitions: int) -> None:
        from confluent_kafka import KafkaException

        base = MadeAnew.of(self._folder).base
        for sequence, event in numbered:
            record = _record(event)
            sent = placed(self._location, self._whole, producer, sequence, record.key, record.value or b"", record.headers)
            partition, now = (sequence if sent.key is None else zlib.crc32(sent.key)) % partitions, datetime.now(UTC)
            row = histories.SentRow(producer, sequence, partition, None, _shown_key(sent.key, sequence), sent.crc, now, sha256=sent.sha256)
            self._rows.append(row)
            try:
                self._producer.produce(
                    self._topic,
                    sent.value,
                    sent.key,
                    row.partition,
                    headers=sent.headers,
                    on_delivery=self._settle(row, base.get(partition, 0)),
                    timestamp=record.timestamp_ms or 0,
                )
            except KafkaException as error:  # it was not even queued: that it is not in the log is certain
                row.outcome = Outcome.REJECTED
                log.warning("record %d/%d was refused: %s", producer, sequence, error)
        if numbered:
            self._producer.flush(FLUSH_S)
            settled = [row for row in self._rows if row.outcome is not Outcome.INDETERMINATE]
            self._rows = [row for row in self._rows if row.outcome is Outcome.INDETERMINATE]
            self._log(settled)

    def _log(self, rows: list[histories.SentRow]) -> None:
        """Write outcomes down that no longer change."""
        if self._stream is None:
            self._stream = SentStream(self._folder.sent / f"{self._file:05d}{sent_stream.SUFFIX}")
        self._stream.append(rows)
        self._logged.update(row.outcome for row in rows)

    def _settle(self, row: histories.SentRow, base: int = 0) -> Any:
        def settle(error: Any, message: Any) -> None:
            if error is None:
                row.outcome, row.offset = Outcome.ACKED, base + message.offset()
            elif error.code() in _REFUSALS():
                row.outcome = Outcome.REJECTED

        return settle

    @property
    def counts(self) -> dict[Outcome, int]:
        """How many of this sender's records have each outcome, as far as it is known now."""
        now = self._logged + Counter(row.outcome for row in self._rows)
        return {outcome: now[outcome] for outcome in Outcome}

    def save(self) -> None:
        """Write down what became of the records so far, once no answer is outstanding (or ``FLUSH_S`` have passed)."""
        if self._rows:
            self._producer.flush(FLUSH_S)
            self._log(self._rows)
            self._rows = []
        if self._stream is not None:
            self._stream.fold()
            self._file, self._stream = self._file + 1, None


def _record(event: Event) -> Recorded:
    return event if isinstance(event, Recorded) else Recorded(event[0].encode(), event[1])


def _under_a_hot_key(event: Event, sequence: int, share: float) -> Event:
    if isinstance(event, Recorded):
        return replace(event, key=hot(event.key, sequence, share))
    key, payload = event
    return (hot(key.encode(), sequence, share) or b"").decode(), payload


def _shown_key(key: bytes | None, sequence: int) -> str:
    """A key as ``sent/`` has it: by it the records of one key are known. A record without a key is alone under its own."""
    return f"no key {sequence}" if key is None else key.decode(errors="backslashreplace")


def _REFUSALS() -> frozenset[int]:  # noqa: N802
    """Errors by which the broker (or the client, before sending) says that the record is certainly not in the log."""
    from confluent_kafka import KafkaError

    return frozenset(
        {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._UNKNOWN_PARTITION, KafkaError.INVALID_RECORD}
    )


def pace(sent: int, begun: float, rate_per_s: int) -> bool:
    """Whether the next chunk may go: at most ``rate_per_s`` since ``begun`` (monotonic)."""
    return rate_per_s == 0 or sent <= rate_per_s * (time.monotonic() - begun)


def settled(folder: RunFolder) -> Counter[Outcome]:
    """What became of the records that were sent, or were to be sent, so far. Raises EvidenceError when ``sent/`` cannot be read."""
    sent = histories.read_sent(folder)
    acked, rejected = int(sent.acked.sum()), int(sent.rejected.sum())
    return Counter({Outcome.ACKED: acked, Outcome.REJECTED: rejected, Outcome.INDETERMINATE: len(sent) - acked - rejected})


def intended(path: Path) -> list[dict[str, int]]:
    """The ranges that were to be sent: producer, first sequence, count."""
    return [dict(intent) for intent in read_json_lines(path)]
