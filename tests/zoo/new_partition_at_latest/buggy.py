"""Orders from Kafka into PostgreSQL. Rows and progress are written in one transaction; new partitions are found every two seconds."""

import json
import os
import time

import psycopg
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, Message, TopicPartition

TOPIC = os.environ["TOPIC"]
TABLES = """
CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text);
CREATE TABLE IF NOT EXISTS progress (partition int PRIMARY KEY, next_offset bigint NOT NULL);
"""
ONE_INSTANCE = "SELECT pg_advisory_lock(1)"
INSERT = "INSERT INTO orders VALUES (%(order_id)s, %(carrier)s, %(origin)s, %(dest)s)"
ADVANCE = "INSERT INTO progress VALUES (%s, %s) ON CONFLICT (partition) DO UPDATE SET next_offset = excluded.next_offset"
LOOK_S = 2.0


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def save(database: psycopg.Connection, ends: dict[int, int], messages: list[Message]) -> None:
    ends.update({message.partition(): message.offset() + 1 for message in messages})
    database.cursor().executemany(INSERT, [json.loads(message.value()) for message in messages])
    database.cursor().executemany(ADVANCE, list(ends.items()))
    database.commit()


def assign(consumer: Consumer, ends: dict[int, int]) -> None:
    """Read every partition that there is: from where it was left, one that is new from now on."""
    partitions = consumer.list_topics(TOPIC, 30).topics[TOPIC].partitions
    if len(partitions) != len(consumer.assignment()):
        new = OFFSET_END if ends else OFFSET_BEGINNING
        consumer.assign([TopicPartition(TOPIC, partition, ends.get(partition, new)) for partition in partitions])


def main() -> None:
    database = psycopg.connect(os.environ["POSTGRES"])
    database.execute(ONE_INSTANCE)
    database.execute(TABLES)
    ends = dict(database.execute("SELECT partition, next_offset FROM progress").fetchall())
    database.commit()
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"],
            "group.id": os.environ["GROUP"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    committed: dict[int, int] = {}
    looked = None
    while True:
        if looked is None or time.monotonic() - looked > LOOK_S:
            assign(consumer, ends)
            looked = time.monotonic()
        if messages := read(consumer):
            save(database, ends, messages)
        if ends != committed:
            committed = dict(ends)
            offsets = [TopicPartition(TOPIC, partition, end) for partition, end in ends.items()]
            consumer.commit(offsets=offsets, asynchronous=False)


if __name__ == "__main__":
    main()
