"""Orders from Kafka into PostgreSQL, by two-phase commit: the rows of each partition are prepared on their own, then all are committed."""

import json
import os
import time

import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

JOB = os.environ["JOB"]
ONE_INSTANCE = "SELECT pg_advisory_lock(1)"
TABLES = """
CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text);
CREATE TABLE IF NOT EXISTS decisions (batch int PRIMARY KEY, gids text[] NOT NULL, ends jsonb NOT NULL);
"""
INSERT = "INSERT INTO orders VALUES (%(order_id)s, %(carrier)s, %(origin)s, %(dest)s)"
DECIDE = "INSERT INTO decisions VALUES (%s, %s, %s)"
PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE gid LIKE %s"
TOO_OLD = " AND prepared < now() - interval '1 second'"

GRACE_S = 2.0

ends: dict[int, int] = {}


def recover(database: psycopg.Connection) -> int:
    """Finish what the start before this one left; the number of the next batch."""
    decided: set[str] = set()
    batch = 0
    for number, gids, until in database.execute("SELECT batch, gids, ends FROM decisions ORDER BY batch").fetchall():
        decided.update(gids)
        ends.update({int(partition): end for partition, end in until.items()})
        batch = number + 1
    for (gid,) in database.execute(PREPARED + TOO_OLD, [f"{JOB}.%"]).fetchall():
        database.execute(f"ROLLBACK PREPARED '{gid}'")
    for (gid,) in database.execute(PREPARED, [f"{JOB}.%"]).fetchall():
        database.execute(f"COMMIT PREPARED '{gid}'" if gid in decided else f"ROLLBACK PREPARED '{gid}'")
    return batch


def deliver(database: psycopg.Connection, batch: int, messages: list[Message]) -> None:
    gids = []
    for partition in {message.partition() for message in messages}:
        rows = [json.loads(message.value()) for message in messages if message.partition() == partition]
        gids.append(f"{JOB}.{batch}.{partition}")
        database.execute("BEGIN")
        database.cursor().executemany(INSERT, rows)
        database.execute(f"PREPARE TRANSACTION '{gids[-1]}'")
    ends.update({message.partition(): message.offset() + 1 for message in messages})
    database.execute(DECIDE, [batch, gids, json.dumps(ends)])
    for gid in gids:
        database.execute(f"COMMIT PREPARED '{gid}'")


def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    for partition in partitions:
        partition.offset = ends.get(partition.partition, OFFSET_BEGINNING)
    consumer.assign(partitions)


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def main() -> None:
    time.sleep(GRACE_S)  # the start before this one may still be on its way out
    database = psycopg.connect(os.environ["POSTGRES"], autocommit=True)
    database.execute(ONE_INSTANCE)
    database.execute(TABLES)
    batch = recover(database)
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"],
            "group.id": os.environ["GROUP"],
            "group.instance.id": "orders-0",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([os.environ["TOPIC"]], on_assign=assigned)
    committed: dict[int, int] = {}
    while True:
        if messages := read(consumer):
            deliver(database, batch, messages)
            batch += 1
        if ends != committed and consumer.assignment():
            committed = dict(ends)
            offsets = [TopicPartition(os.environ["TOPIC"], partition, end) for partition, end in ends.items()]
            consumer.commit(offsets=offsets, asynchronous=False)


if __name__ == "__main__":
    main()
