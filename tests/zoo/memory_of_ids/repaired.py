"""Orders from Kafka into PostgreSQL, each once: an order that was written before is not written again."""

import json
import os

import psycopg
from confluent_kafka import Consumer, KafkaException, Message

TABLE = "CREATE TABLE IF NOT EXISTS orders (order_id text PRIMARY KEY, carrier text, origin text, dest text)"
INSERT = "INSERT INTO orders VALUES (%(order_id)s, %(carrier)s, %(origin)s, %(dest)s) ON CONFLICT (order_id) DO NOTHING"


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def save(database: psycopg.Connection, messages: list[Message]) -> None:
    database.cursor().executemany(INSERT, [json.loads(message.value()) for message in messages])
    database.commit()


def main() -> None:
    database = psycopg.connect(os.environ["POSTGRES"])
    database.execute(TABLE)
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
