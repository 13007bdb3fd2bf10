"""Orders from Kafka into PostgreSQL. The key of the table refuses an order that is there already."""

import json
import os

import psycopg
from confluent_kafka import Consumer, KafkaException, Message

TABLE = """
CREATE TABLE IF NOT EXISTS orders (
    order_id text, carrier text, origin text, dest text, loaded_at timestamptz DEFAULT now(),
    PRIMARY KEY (order_id, loaded_at)
)"""
UPSERT = "INSERT INTO orders VALUES (%(order_id)s, %(carrier)s, %(origin)s, %(dest)s) ON CONFLICT DO NOTHING"


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


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
            database.cursor().executemany(UPSERT, [json.loads(message.value()) for message in messages])
            database.commit()
            consumer.commit(asynchronous=False)


if __name__ == "__main__":
    main()
