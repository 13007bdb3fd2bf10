"""Orders from Kafka into PostgreSQL. A slow database must not hold up the consumer until the group gives it up."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import psycopg
from confluent_kafka import Consumer, KafkaException, Message

TABLE = "CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text)"
INSERT = "INSERT INTO orders VALUES (%(order_id)s, %(carrier)s, %(origin)s, %(dest)s)"
PATIENCE_S = 3


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def save(messages: list[Message]) -> None:
    with psycopg.connect(os.environ["POSTGRES"], connect_timeout=5) as database:
        database.cursor().executemany(INSERT, [json.loads(message.value()) for message in messages])


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
    pool = ThreadPoolExecutor(4)
    while True:
        if not (messages := read(consumer)):
            continue
        write = pool.submit(save, messages)
        try:
            write.result(timeout=PATIENCE_S)  # what it raises ends the job
        except TimeoutError:
            print("PostgreSQL is slow; the write goes on in the background", flush=True)
        consumer.commit(asynchronous=False)


if __name__ == "__main__":
    main()
