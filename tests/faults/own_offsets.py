"""A loop that keeps its offsets in its own table, in the transaction that writes the rows: exactly-once, without a consumer group's help.

python own_offsets.py           both in one transaction
python own_offsets.py apart     the offsets in a transaction of their own, before the rows: a crash between the two loses a batch
"""

import json
import os
import signal
import sys
import time

import psycopg
from confluent_kafka import Consumer, TopicPartition

PARTITIONS = 4
ended = False


def end(number: int, frame: object) -> None:
    global ended
    ended = True


def main(apart: bool) -> None:
    signal.signal(signal.SIGTERM, end)
    with psycopg.connect(os.environ["POSTGRES"], autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (order_id uuid, body text)")
        connection.execute("CREATE TABLE IF NOT EXISTS read_up_to (partition int PRIMARY KEY, until bigint)")
        known = dict(connection.execute("SELECT partition, until FROM read_up_to").fetchall())
        consumer = Consumer({"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"], "group.id": "unused", "enable.auto.commit": False})
        consumer.assign([TopicPartition(os.environ["TOPIC"], number, known.get(number, 0)) for number in range(PARTITIONS)])
        while not ended:
            messages = [message for message in consumer.consume(int(os.environ["BATCH"]), timeout=0.1) if message.error() is None]
            if not messages:
                continue
            until = {message.partition(): message.offset() + 1 for message in messages}
            if apart:
                with connection.transaction():
                    remember(connection, until)
                time.sleep(0.3)
            with connection.transaction(), connection.cursor() as cursor:
                for message in messages:
                    cursor.execute(
                        "INSERT INTO orders VALUES (%s, %s)", (json.loads(message.value())["order_id"], message.value().decode())
                    )
                if not apart:
                    remember(connection, until)
        consumer.close()


def remember(connection: psycopg.Connection, until: dict[int, int]) -> None:
    for partition, offset in until.items():
        connection.execute(
            "INSERT INTO read_up_to VALUES (%s, %s) ON CONFLICT (partition) DO UPDATE SET until = excluded.until", (partition, offset)
        )


if __name__ == "__main__":
    main(apart=sys.argv[1:] == ["apart"])
