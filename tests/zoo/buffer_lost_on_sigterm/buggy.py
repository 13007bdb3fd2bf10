"""Orders from Kafka into PostgreSQL, in bulk: rows are collected, and written once there are enough of them, or a second is over."""

import json
import os
import signal
import time

import psycopg
from confluent_kafka import Consumer, KafkaException

TABLE = "CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text)"
INSERT = "INSERT INTO orders VALUES (%(order_id)s, %(carrier)s, %(origin)s, %(dest)s)"
EVERY_S = 1.0
running = True


def stop(number: int, frame: object) -> None:
    global running
    running = False


def main() -> None:
    signal.signal(signal.SIGTERM, stop)
    database = psycopg.connect(os.environ["POSTGRES"], connect_timeout=5)
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
    rows: list[dict[str, str]] = []
    flushed_at = time.monotonic()
    while running:
        message = consumer.poll(0.1)
        if message is not None:
            if message.error():
                raise KafkaException(message.error())
            rows.append(json.loads(message.value()))
        if rows and (len(rows) >= int(os.environ["BATCH"]) or time.monotonic() - flushed_at > EVERY_S):
            database.cursor().executemany(INSERT, rows)
            database.commit()
            consumer.commit(asynchronous=False)
            rows, flushed_at = [], time.monotonic()
    if consumer.assignment():  # hand the partitions over cleanly
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            print(f"nothing to commit: {error}", flush=True)
    consumer.close()


if __name__ == "__main__":
    main()
