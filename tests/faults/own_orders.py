"""Plain jobs of a user's own, without Spark: orders from Kafka into a table, a topic or files, offsets committed after the output.

python own_orders.py append      append rows, and commit offsets every two seconds: what a crash leaves uncommitted is appended again
python own_orders.py upsert      insert rows; an order that is there stays
python own_orders.py topic       pass records on with their headers, the value changed
python own_orders.py files       a file of JSON lines for each batch, named after its first offset: repeated, it is the same file
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

COMMIT_EVERY_S = 2.0
ended = False


def end(number: int, frame: object) -> None:
    global ended
    ended = True


def read(source: Consumer) -> list[Message]:
    messages = source.consume(int(os.environ["BATCH"]), timeout=0.2)
    return [message for message in messages if message.error() is None]


def into_table(messages: list[Message]) -> None:
    import psycopg

    orders = [json.loads(message.value()) for message in messages]
    with psycopg.connect(os.environ["POSTGRES"]) as connection, connection.cursor() as cursor:
        insert = "INSERT INTO orders (order_id, amount) VALUES (%s, %s)"
        insert += " ON CONFLICT (order_id) DO NOTHING" if sys.argv[1] == "upsert" else ""
        cursor.executemany(insert, [(order["order_id"], order["amount"]) for order in orders])


def into_topic(messages: list[Message]) -> None:
    sink = Producer({"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"], "enable.idempotence": True})
    for message in messages:
        sink.produce(os.environ["OUTPUT"], b"%d" % json.loads(message.value())["amount"], message.key(), headers=message.headers())
    if sink.flush(20):
        raise RuntimeError("the output was not acknowledged")


def into_files(messages: list[Message]) -> None:
    """Offsets of a partition are read in order, so a batch that is repeated begins where it began before; it may be longer."""
    folder, by_partition = Path(os.environ["OUTPUT"]), {}
    for message in messages:
        by_partition.setdefault(message.partition(), []).append(message)
    for partition, some in by_partition.items():
        lines: list[Any] = [json.dumps({**json.loads(message.value()), "offset": message.offset()}) for message in some]
        part = folder / f".{partition}-{some[0].offset():09d}.json"
        part.write_text("\n".join(lines) + "\n")
        part.rename(folder / part.name[1:])


def main() -> None:
    signal.signal(signal.SIGTERM, end)
    every_s = COMMIT_EVERY_S if sys.argv[1] == "append" else 0.0
    write = {"append": into_table, "upsert": into_table, "topic": into_topic, "files": into_files}[sys.argv[1]]
    settings = {"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"], "group.id": os.environ["GROUP"], "session.timeout.ms": 6000}
    source = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    source.subscribe([os.environ["TOPIC"]])
    ends: dict[tuple[str | None, int | None], int] = {}
    committed_at = time.monotonic()
    try:
        while not ended:
            if messages := read(source):
                write(messages)
                ends |= {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
            if ends and time.monotonic() - committed_at >= every_s:
                source.commit(offsets=[TopicPartition(*location, offset) for location, offset in ends.items()], asynchronous=False)
                ends, committed_at = {}, time.monotonic()
    finally:
        source.close()


if __name__ == "__main__":
    main()
