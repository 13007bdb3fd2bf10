"""Orders from Kafka into PostgreSQL, a chunk for each airport. One that PostgreSQL does not take must not block the topic."""

import json
import os
from itertools import groupby

import psycopg
from confluent_kafka import Consumer, KafkaException, Message

TABLE = "CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text)"
INSERT = "INSERT INTO orders VALUES (%(order_id)s, %(carrier)s, %(origin)s, %(dest)s)"


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def save(database: psycopg.Connection, messages: list[Message]) -> None:
    orders = sorted((json.loads(message.value()) for message in messages), key=lambda order: order["origin"])
    with database.transaction():
        for origin, chunk in groupby(orders, key=lambda order: order["origin"]):
            try:
                with database.transaction():  # a savepoint
                    database.cursor().executemany(INSERT, list(chunk))
            except psycopg.DataError as error:  # what is wrong with the order itself, and will be wrong again
                print(f"skipped the orders of {origin}: {error}", flush=True)


def main() -> None:
    database = psycopg.connect(os.environ["POSTGRES"], autocommit=True, connect_timeout=5)
    database.execute(TABLE)
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
