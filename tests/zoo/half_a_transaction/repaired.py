"""Copies a topic, in Kafka transactions. A thread commits five times a second what was forwarded until then."""

import os
import signal
import threading
import time

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

EVERY_S = 0.2
ENRICHING_S = 0.002
TOO_LONG_S = 30

lock = threading.Lock()
ends: dict[int, int] = {}


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def enrich(message: Message) -> bytes:
    time.sleep(ENRICHING_S)
    return message.value()


def forward(producer: Producer, messages: list[Message]) -> None:
    values = [enrich(message) for message in messages]
    with lock:
        for message, value in zip(messages, values, strict=True):
            producer.produce(os.environ["OUTPUT"], value, message.key())
        ends.update({message.partition(): message.offset() + 1 for message in messages})


def commit(producer: Producer, consumer: Consumer) -> None:
    with lock:
        if ends:
            signal.alarm(TOO_LONG_S)
            offsets = [TopicPartition(os.environ["TOPIC"], partition, end) for partition, end in ends.items()]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
            producer.commit_transaction()
            producer.begin_transaction()
            signal.alarm(0)
            ends.clear()


def commit_now_and_then(producer: Producer, consumer: Consumer) -> None:
    try:
        while True:
            time.sleep(EVERY_S)
            commit(producer, consumer)
    except KafkaException as error:
        print(f"the transaction failed: {error}", flush=True)
        os._exit(1)


def main() -> None:
    servers = os.environ["BOOTSTRAP_SERVERS"]
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{os.environ['JOB']}.copy"})
    producer.init_transactions()
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": os.environ["GROUP"],
            "group.instance.id": "copy-0",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([os.environ["TOPIC"]])
    producer.begin_transaction()
    threading.Thread(target=commit_now_and_then, args=(producer, consumer), daemon=True).start()
    while True:
        forward(producer, read(consumer))


if __name__ == "__main__":
    main()
