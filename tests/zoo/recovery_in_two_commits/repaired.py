"""Orders from Kafka into PostgreSQL by way of a staging table. A start that finds a staged batch finishes it first."""

import json
import os

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

TABLES = """
CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text);
CREATE TABLE IF NOT EXISTS staged (order_id text, carrier text, origin text, dest text);
CREATE TABLE IF NOT EXISTS progress (partition int PRIMARY KEY, next_offset bigint NOT NULL);
"""
STAGE = "INSERT INTO staged VALUES (%(order_id)s, %(carrier)s, %(origin)s, %(dest)s)"
ADVANCE = "INSERT INTO progress VALUES (%s, %s) ON CONFLICT (partition) DO UPDATE SET next_offset = excluded.next_offset"


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def finish_staged(database: psycopg.Connection) -> None:
    """What a start that died has left behind."""
    (left,) = database.execute("SELECT count(*) FROM staged").fetchone() or (0,)
    database.commit()
    if left:
        database.execute("INSERT INTO orders SELECT * FROM staged")
        database.execute("DELETE FROM staged")
        database.commit()


def save(database: psycopg.Connection, messages: list[Message], ends: dict[int, int]) -> None:
    cursor = database.cursor()
    cursor.executemany(STAGE, [json.loads(message.value()) for message in messages])
    cursor.executemany(ADVANCE, list(ends.items()))
    database.commit()
    database.execute("INSERT INTO orders SELECT * FROM staged")
    database.execute("DELETE FROM staged")
    database.commit()


def main() -> None:
    database = psycopg.connect(os.environ["POSTGRES"], connect_timeout=5)
    database.execute("SELECT pg_advisory_lock(1)")
    database.execute(TABLES)
    database.commit()
    finish_staged(database)
    ends = dict(database.execute("SELECT partition, next_offset FROM progress").fetchall())
    database.commit()

    def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            partition.offset = ends.get(partition.partition, OFFSET_BEGINNING)
        consumer.assign(partitions)

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
    committed: dict[int, int] = {}
    while True:
        if messages := read(consumer):
            ends.update({message.partition(): message.offset() + 1 for message in messages})
            save(database, messages, ends)
        if ends != committed and consumer.assignment():
            committed = dict(ends)
            consumer.commit(offsets=[TopicPartition(os.environ["TOPIC"], *end) for end in ends.items()], asynchronous=False)


if __name__ == "__main__":
    main()
