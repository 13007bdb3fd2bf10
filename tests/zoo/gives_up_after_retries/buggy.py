"""Orders from Kafka into PostgreSQL. A write that fails is tried again, with a new connection and ever longer pauses."""

import json
import os
import time

import psycopg
from confluent_kafka import Consumer, KafkaException, Message

TABLE = "CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text)"
INSERT = "INSERT INTO orders VALUES (%(order_id)s, %(carrier)s, %(origin)s, %(dest)s)"
PAUSES = (1, 2, 4, 8, 16)


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def save(messages: list[Message]) -> None:
    orders = [json.loads(message.value()) for message in messages]
    for pause in PAUSES:
        try:
            with psycopg.connect(os.environ["POSTGRES"], connect_timeout=5) as database:
                database.cursor().executemany(INSERT, orders)
            return
        except psycopg.Error as error:
            print(f"not written, again in {pause} s: {error}", flush=True)
            time.sleep(pause)
    print(f"gave up on {len(orders)} orders", flush=True)


def main() -> None:
    with psycopg.connect(os.environ["POSTGRES"], connect_timeout=5) as database:
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
            save(messages)
            consumer.commit(asynchronous=False)


if __name__ == "__main__":
    main()
