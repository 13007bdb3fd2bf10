"""A late EndTxn of one transaction commits the next one: a reproduction for librdkafka.

    python librdkafka_late_endtxn.py --bootstrap HOST:PORT

It needs confluent-kafka, and a Kafka broker that takes connections in plain text. It makes topics, and deletes them at its end.

A transaction T1 is committed. A transaction T2 is opened, its records are flushed. Now an EndTxn(commit) arrives with the producer id and
the epoch of T1. The broker receives the same when T1's first EndTxn is slow, its connection is cut, librdkafka connects again, and its
retry commits T1. Here the request is sent by hand, so that it arrives at a known moment.

It tries this twice: T2 by the producer instance of T1, and T2 by a new instance with the same transactional id.
Exit code 1: the late EndTxn committed T2 in the first case. Exit code 0: it did not.
"""

from __future__ import annotations

import argparse
import socket
import struct
import sys
import time
import uuid

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

WAIT_S = 30.0
RECORDS = 10
FIND_COORDINATOR, END_TXN, DESCRIBE_TRANSACTIONS = 10, 26, 65


def ask(address: tuple[str, int], api: int, version: int, body: bytes, *, tagged: bool = False) -> bytes:
    """Send one request and return its answer, without the headers. ``tagged``: headers end with an empty set of tagged fields."""
    client = b"late-endtxn"
    header = struct.pack(">hhih", api, version, 1, len(client)) + client + (b"\0" if tagged else b"")
    with socket.create_connection(address, WAIT_S) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(header + body)) + header + body)
        (size,) = struct.unpack(">i", answers.read(4))
        return answers.read(size)[5 if tagged else 4 :]


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def coordinator(bootstrap: str, name: str) -> tuple[str, int]:
    """The address of the broker that coordinates this transactional id."""
    host, port = bootstrap.rsplit(":", 1)
    answer = ask((host, int(port)), FIND_COORDINATOR, 1, string(name) + b"\1")
    error, text = struct.unpack_from(">hh", answer, 4)
    if error:
        raise RuntimeError(f"FindCoordinator: error {error}")
    at = 8 + max(text, 0) + 4
    (size,) = struct.unpack_from(">h", answer, at)
    (found,) = struct.unpack_from(">i", answer, at + 2 + size)
    return answer[at + 2 : at + 2 + size].decode(), found


def holder(address: tuple[str, int], name: str) -> tuple[int, int, str]:
    """Producer id and epoch that hold this transactional id, and the state of its transaction."""
    answer = ask(address, DESCRIBE_TRANSACTIONS, 0, bytes([2, len(name) + 1]) + name.encode() + b"\0", tagged=True)
    (error,) = struct.unpack_from(">h", answer, 5)
    if error:
        raise RuntimeError(f"DescribeTransactions: error {error}")
    at = 7 + answer[7]
    state = answer[at + 1 : at + answer[at]].decode()
    producer_id, epoch = struct.unpack_from(">qh", answer, at + answer[at] + 12)
    return producer_id, epoch, state


def end_txn(address: tuple[str, int], name: str, producer_id: int, epoch: int) -> int:
    """Send EndTxn(commit); its error code. Version 1, which is what librdkafka sends."""
    return int(struct.unpack_from(">h", ask(address, END_TXN, 1, string(name) + struct.pack(">qhb", producer_id, epoch, 1)), 4)[0])


def visible(bootstrap: str, topic: str, value: bytes) -> int:
    """How many records with this value a read_committed consumer sees."""
    reader: Consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    found = 0
    try:
        while True:
            message = reader.poll(WAIT_S)
            if message is None:
                raise RuntimeError("no answer to a fetch")
            if message.error() is not None:  # the end of the partition, as far as it is committed
                return found
            found += message.value() == value
    finally:
        reader.close()


def initialised(bootstrap: str, name: str) -> Producer:
    producer: Producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(WAIT_S)
    return producer


def opened(producer: Producer, topic: str, value: bytes) -> None:
    """A transaction with records that are all on the broker."""
    producer.begin_transaction()
    for _ in range(RECORDS):
        producer.produce(topic, value)
    if producer.flush(WAIT_S):
        raise RuntimeError("records were not delivered")


def tried(bootstrap: str, topic: str, name: str, *, anew: bool) -> bool:
    """One trial. Returns whether the late EndTxn committed T2."""
    print(f"\nT2 by {'a new instance with the same transactional id' if anew else 'the producer instance of T1'}:")
    producer = initialised(bootstrap, name)
    opened(producer, topic, b"T1")
    producer.commit_transaction(WAIT_S)
    address = coordinator(bootstrap, name)
    while (known := holder(address, name))[2] != "CompleteCommit":  # the commit's markers are being written
        time.sleep(0.05)
    print(f"  T1 is committed      producer id {known[0]}, epoch {known[1]}")

    if anew:
        producer = initialised(bootstrap, name)
    opened(producer, topic, b"T2")
    now = holder(address, name)
    print(
        f"  T2 is {now[2]:14} producer id {now[0]}, epoch {now[1]}; {visible(bootstrap, topic, b'T2')} of its {RECORDS} records are visible"
    )

    error = end_txn(address, name, known[0], known[1])
    time.sleep(1.0)  # a commit's markers
    early = visible(bootstrap, topic, b"T2")
    print(f"  EndTxn(commit) of T1 arrives late: error {error}")
    print(f"  T2 is {holder(address, name)[2]:14} {early} of its {RECORDS} records are visible, its application has not committed")
    try:
        producer.abort_transaction(WAIT_S)
        answer = "done"
    except KafkaException as failed:
        answer = str(failed.args[0].str())
    print(f"  abort_transaction()  {answer}")
    print(f"  {visible(bootstrap, topic, b'T2')} of the {RECORDS} records of T2 are visible, 0 expected")
    return early > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a Kafka broker")
    bootstrap = parser.parse_args().bootstrap
    print(f"librdkafka {confluent_kafka.libversion()[0]}, confluent-kafka {confluent_kafka.__version__}")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    committed = []
    for anew in (False, True):
        topic = f"late-endtxn-{uuid.uuid4().hex[:8]}"
        admin.create_topics([NewTopic(topic, 1)])[topic].result(WAIT_S)
        try:
            committed.append(tried(bootstrap, topic, topic, anew=anew))
        finally:
            admin.delete_topics([topic])[topic].result(WAIT_S)
    same, anew = committed
    print(f"\nA late EndTxn of T1 {'commits' if same else 'does not commit'} T2 of the same producer instance.")
    print(f"A late EndTxn of T1 {'commits' if anew else 'does not commit'} T2 of a new instance.")
    return int(same)


if __name__ == "__main__":
    sys.exit(main())
