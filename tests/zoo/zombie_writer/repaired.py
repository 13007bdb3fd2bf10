"""Orders from Kafka into PostgreSQL. Rows and progress are written in one transaction, so that each order is there once."""

import json
import os

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

TABLES = """
CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text);
CREATE TABLE IF NOT EXISTS progress (partition int PRIMARY KEY, next_offset bigint NOT NULL);
"""
BEGIN = "INSERT INTO progress VALUES (%s, 0) ON CONFLICT DO NOTHING"
ADVANCE = "UPDATE progress SET next_offset = %s WHERE partition = %s AND next_offset = %s"
INSERT = "INSERT INTO orders VALUES (%(order_id)s, %(carrier)s, %(origin)s, %(dest)s)"


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def save(database: psycopg.Connection, ends: dict[int, int], messages: list[Message]) -> None:
    after = {message.partition(): message.offset() + 1 for message in messages}
    with database.transaction():
        for partition, end in after.items():
            database.execute(BEGIN, [partition])
            if database.execute(ADVANCE, [end, partition, ends.get(partition, 0)]).rowcount != 1:
                raise RuntimeError(f"somebody else has written partition {partition}")
        database.cursor().executemany(INSERT, [json.loads(message.value()) for message in messages])
    ends.update(after)


def main() -> None:
    database = psycopg.connect(os.environ["POSTGRES"], autocommit=True)
    database.execute(TABLES)
    ends = dict(database.execute("SELECT partition, next_offset FROM progress").fetchall())

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
            save(database, ends, messages)
        if ends != committed and consumer.assignment():
            committed = dict(ends)
            offsets = [TopicPartition(os.environ["TOPIC"], partition, end) for partition, end in ends.items()]
            consumer.commit(offsets=offsets, asynchronous=False)


if __name__ == "__main__":
    main()
