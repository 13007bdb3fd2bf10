"""Consume, transform, produce: a plain loop on confluent-kafka, as people write it. Not on Spark, and it knows nothing of streamproof.

    python forward.py                  commits its offsets every two seconds, after the output was acknowledged: at-least-once
    python forward.py --transactions   commits output and offsets in one Kafka transaction: exactly-once

Where it works stands in the environment (see docs/engines.md). On SIGTERM it ends in good order.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from confluent_kafka import Consumer, Message, Producer, TopicPartition

COMMIT_EVERY_S = 2.0
POLL_S = 0.05
TRANSACTION_S = 10

ended = False


def end(number: int, frame: object) -> None:
    global ended
    ended = True


def transform(message: Message) -> bytes:
    """The value with one field more, and where the record came from."""
    value = message.value()
    return value[:-1] + b',"source":{"partition":%d,"offset":%d}}' % (message.partition(), message.offset())


def consumer() -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": os.environ["STREAMPROOF_BOOTSTRAP_SERVERS"],
            "group.id": os.environ["STREAMPROOF_GROUP"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6000,
        }
    )


def producer(**settings: object) -> Producer:
    servers = {"bootstrap.servers": os.environ["STREAMPROOF_BOOTSTRAP_SERVERS"], "metadata.recovery.strategy": "none"}
    # Without that a producer that has lost its connections forgets the broker that it waits for, and waits for ever (librdkafka's #5511).
    return Producer({**servers, "enable.idempotence": True, "linger.ms": 5, **settings})


def read(source: Consumer) -> list[Message]:
    messages = source.consume(int(os.environ["STREAMPROOF_BATCH_RECORDS"]), timeout=POLL_S)
    for message in messages:
        if message.error() is not None and not message.error().retriable():
            raise RuntimeError(message.error())
    return [message for message in messages if message.error() is None]


def write(sink: Producer, messages: list[Message]) -> None:
    for message in messages:
        sink.produce(os.environ["STREAMPROOF_OUTPUT_TOPIC"], transform(message), message.key())


def at_least_once(source: Consumer) -> None:
    """Output first, offsets every two seconds: a crash between the two writes the same records again."""
    sink, committed_at = producer(), time.monotonic()
    behind = False
    while not ended:
        messages = read(source)
        write(sink, messages)
        if sink.flush(TRANSACTION_S):
            raise RuntimeError("the output was not acknowledged")
        behind = behind or bool(messages)
        if behind and time.monotonic() - committed_at > COMMIT_EVERY_S:
            source.commit(asynchronous=False)
            behind, committed_at = False, time.monotonic()
    if behind:
        source.commit(asynchronous=False)


def exactly_once(source: Consumer) -> None:
    """Each set of records in a transaction of its own, together with the offsets that come after it."""
    identity = f"{os.environ['STREAMPROOF_JOB']}.forward"
    timeout_ms = int(os.environ["STREAMPROOF_TRANSACTION_TIMEOUT_MS"])
    sink = producer(**{"transactional.id": identity, "transaction.timeout.ms": timeout_ms})
    sink.init_transactions(TRANSACTION_S)
    while not ended:
        messages = read(source)
        if not messages:
            continue
        ends: dict[int, int] = {}
        for message in messages:
            ends[message.partition()] = message.offset() + 1
        offsets = [TopicPartition(os.environ["STREAMPROOF_INPUT_TOPIC"], partition, offset) for partition, offset in ends.items()]
        # After its connection was cut librdkafka 2.16 may wait for ever in `send_offsets_to_transaction`, whatever time it is given. The
        # alarm ends this process then, as a liveness probe would, and its supervisor starts it again.
        signal.alarm(TRANSACTION_S)
        sink.begin_transaction()
        write(sink, messages)
        sink.send_offsets_to_transaction(offsets, source.consumer_group_metadata(), TRANSACTION_S)
        sink.commit_transaction(TRANSACTION_S)
        signal.alarm(0)


def main() -> None:
    signal.signal(signal.SIGTERM, end)
    source = consumer()
    source.subscribe([os.environ["STREAMPROOF_INPUT_TOPIC"]])
    try:
        if "--transactions" in sys.argv[1:]:
            exactly_once(source)
        else:
            at_least_once(source)
    finally:
        source.close()


if __name__ == "__main__":
    main()
