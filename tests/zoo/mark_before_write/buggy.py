"""Orders from Kafka into PostgreSQL. The table `progress` says up to where each partition was taken over; what lies before is passed by."""

import json
import os

import psycopg
from confluent_kafka import Consumer, KafkaException, Message

TABLES = """
CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text);
CREATE TABLE IF NOT EXISTS progress (partition int PRIMARY KEY, next_offset bigint NOT NULL);
"""
ONE_INSTANCE = "SELECT pg_advisory_lock(1)"
MARK = "INSERT INTO progress VALUES (%s, %s) ON CONFLICT (partition) DO UPDATE SET next_offset = excluded.next_offset"
INSERT = "INSERT INTO orders VALUES (%(order_id)s, %(carrier)s, %(origin)s, %(dest)s)"


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def save(database: psycopg.Connection, messages: list[Message]) -> None:
    cursor = database.cursor()
    done = dict(cursor.execute("SELECT partition, next_offset FROM progress").fetchall())
    fresh = [message for message in messages if message.offset() >= done.get(message.partition(), 0)]
    ends = {message.partition(): message.offset() + 1 for message in fresh}
    cursor.executemany(MARK, list(ends.items()))
    database.commit()
    cursor.executemany(INSERT, [json.loads(message.value()) for message in fresh])
    database.commit()


def main() -> None:
    database = psycopg.connect(os.environ["POSTGRES"])
    database.execute(ONE_INSTANCE)
    database.execute(TABLES)
    database.commit()
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"],
            "group.id": os.environ["GROUP"],
            "group.instance.id": "orders-0",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([os.environ["TOPIC"]])
    while True:
        if messages := read(consumer):
            save(database, messages)
            consumer.commit(asynchronous=False)


if __name__ == "__main__":
    main()
