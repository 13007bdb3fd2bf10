"""Orders from Kafka into PostgreSQL. When nothing more comes for two seconds, the dashboard is to show a lag of zero."""

import json
import os
import time

import psycopg
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

TABLE = "CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text)"
INSERT = "INSERT INTO orders VALUES (%(order_id)s, %(carrier)s, %(origin)s, %(dest)s)"
IDLE_S = 2.0


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def ends(consumer: Consumer) -> list[TopicPartition]:
    return [each for each in consumer.position(consumer.assignment()) if each.offset >= 0]


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
    last = None
    while True:
        if messages := read(consumer):
            database.cursor().executemany(INSERT, [json.loads(message.value()) for message in messages])
            database.commit()
            consumer.commit(asynchronous=False)
            last = time.monotonic()
        elif last is not None and time.monotonic() - last > IDLE_S:
            consumer.commit(offsets=ends(consumer), asynchronous=False)
            last = None


if __name__ == "__main__":
    main()
