"""Orders from Kafka into PostgreSQL. Rows and progress are written in one transaction; when the connection breaks it is tried again."""

import json
import os
import time

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

TABLES = """
CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text);
CREATE TABLE IF NOT EXISTS progress (partition int PRIMARY KEY, next_offset bigint NOT NULL);
"""
ONE_WRITER = "LOCK TABLE progress IN EXCLUSIVE MODE"
INSERT = "INSERT INTO orders VALUES (%(order_id)s, %(carrier)s, %(origin)s, %(dest)s)"
ADVANCE = "INSERT INTO progress VALUES (%s, %s) ON CONFLICT (partition) DO UPDATE SET next_offset = excluded.next_offset"
TRIES = 5


def progress(database: psycopg.Connection) -> dict[int, int]:
    return dict(database.execute("SELECT partition, next_offset FROM progress").fetchall())


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def save(messages: list[Message]) -> None:
    with psycopg.connect(os.environ["POSTGRES"], connect_timeout=5) as database:
        database.execute(ONE_WRITER)
        done = progress(database)
        messages = [message for message in messages if message.offset() >= done.get(message.partition(), 0)]
        ends = {message.partition(): message.offset() + 1 for message in messages}
        database.cursor().executemany(INSERT, [json.loads(message.value()) for message in messages])
        database.cursor().executemany(ADVANCE, list(ends.items()))


def save_at_last(messages: list[Message]) -> None:
    for wait_s in range(TRIES):
        try:
            return save(messages)
        except psycopg.OperationalError as error:
            print(f"trying again: {error}", flush=True)
            time.sleep(wait_s)
    raise RuntimeError("the orders could not be written")


def main() -> None:
    with psycopg.connect(os.environ["POSTGRES"], connect_timeout=5) as database:
        database.execute(TABLES)
        begin = progress(database)

    def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            partition.offset = begin.get(partition.partition, OFFSET_BEGINNING)
        consumer.assign(partitions)
        consumer.commit(offsets=[partition for partition in partitions if partition.offset > 0])

    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"],
            "group.id": os.environ["GROUP"],
            "group.instance.id": "orders-0",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([os.environ["TOPIC"]], on_assign=assigned)
    while True:
        if messages := read(consumer):
            save_at_last(messages)
            consumer.commit(asynchronous=False)


if __name__ == "__main__":
    main()
