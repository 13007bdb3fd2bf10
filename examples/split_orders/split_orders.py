"""Orders come in, lines go out: cancelled orders are left out, each item becomes a line, and each line gets the country of its customer.

    python split_orders.py                     output and offsets in one Kafka transaction
    python split_orders.py --no-transactions   offsets every two seconds, after the output
    python split_orders.py --keep-cancelled    somebody forgot the filter

An order of a customer whom customers.csv does not know is left out too.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition

HERE = Path(__file__).resolve().parent
BATCH = int(os.environ["BATCH"])
WAIT_S = 10
COMMIT_EVERY_S = 2.0
ended = False


def end(number: int, frame: object) -> None:
    global ended
    ended = True


def lines(message: Message, countries: dict[str, str], keep_cancelled: bool) -> Iterator[bytes]:
    """The lines of an order."""
    order = json.loads(message.value())
    if order["customer"] not in countries or (order["status"] == "cancelled" and not keep_cancelled):
        return
    for item in order["items"]:
        yield json.dumps({"order": order["number"], "item": item, "country": countries[order["customer"]]}).encode()


def ends(messages: list[Message]) -> list[TopicPartition]:
    """Where each partition goes on."""
    last = {message.partition(): message.offset() + 1 for message in messages}
    return [TopicPartition(os.environ["INPUT"], partition, offset) for partition, offset in last.items()]


def main() -> None:
    transactions, keep_cancelled = "--no-transactions" not in sys.argv, "--keep-cancelled" in sys.argv
    with (HERE / "customers.csv").open() as file:
        countries = {row["customer"]: row["country"] for row in csv.DictReader(file)}
    kafka = {"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"]}
    source = Consumer(
        {**kafka, "group.id": os.environ["GROUP"], "auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 6000}
    )
    own = {"transactional.id": f"{os.environ['JOB']}.lines", "metadata.recovery.strategy": "none"} if transactions else {}
    sink = Producer({**kafka, "enable.idempotence": True, **own})
    if transactions:
        sink.init_transactions(60)
    source.subscribe([os.environ["INPUT"]])
    committed_at, behind = time.monotonic(), False
    while not ended:
        messages = [message for message in source.consume(BATCH, timeout=0.2) if message.error() is None]
        if messages and transactions:
            sink.begin_transaction()
        for message in messages:
            for line in lines(message, countries, keep_cancelled):
                sink.produce(os.environ["OUTPUT"], line, message.key(), headers=message.headers())
        if messages and transactions:
            # librdkafka may wait for ever here after its connection was cut. The alarm ends this process, and it is started again.
            signal.alarm(WAIT_S)
            sink.send_offsets_to_transaction(ends(messages), source.consumer_group_metadata(), WAIT_S)
            sink.commit_transaction(WAIT_S)
            signal.alarm(0)
        elif sink.flush(WAIT_S):
            raise RuntimeError("the output was not acknowledged")
        behind = behind or bool(messages)
        if not transactions and behind and time.monotonic() - committed_at > COMMIT_EVERY_S:
            source.commit(asynchronous=False)
            committed_at, behind = time.monotonic(), False
    source.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    main()
