"""A loop with requirements of its own: an older confluent-kafka than streamproof's. The record's key is its identity."""

import os
import signal

import confluent_kafka
from confluent_kafka import Consumer, Producer

ended = False


def end(number: int, frame: object) -> None:
    global ended
    ended = True


def main() -> None:
    signal.signal(signal.SIGTERM, end)
    print("confluent-kafka", confluent_kafka.__version__)
    servers = os.environ["BOOTSTRAP_SERVERS"]
    group = {"group.id": os.environ["GROUP"], "session.timeout.ms": 6000, "enable.auto.commit": False}
    source = Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest", **group})
    transactions = {"transactional.id": os.environ["TRANSACTIONS"], "transaction.timeout.ms": 20_000}
    sink = Producer({"bootstrap.servers": servers, "metadata.recovery.strategy": "none", **transactions})
    sink.init_transactions()
    source.subscribe([os.environ["INPUT"]])
    while not ended:
        messages = [message for message in source.consume(500, 0.2) if message.error() is None]
        if not messages:
            continue
        sink.begin_transaction()
        for message in messages:
            sink.produce(os.environ["OUTPUT"], message.value(), message.key())
        sink.send_offsets_to_transaction(source.position(source.assignment()), source.consumer_group_metadata())
        sink.commit_transaction()
    source.close()


if __name__ == "__main__":
    main()
