"""Copies a topic. The first deployment reads all that is there, each later start goes on from the committed offsets."""

import os
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition

DEPLOYED = Path(os.environ["STATE"]) / "deployed"


def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    if not DEPLOYED.exists():
        for partition in partitions:
            partition.offset = OFFSET_BEGINNING
        DEPLOYED.touch()
    consumer.assign(partitions)


def delivered(error: object, message: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def main() -> None:
    servers = os.environ["BOOTSTRAP_SERVERS"]
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": os.environ["GROUP"],
            "group.instance.id": "copy-0",
            "auto.offset.reset": "latest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([os.environ["TOPIC"]], on_assign=assigned)
    while True:
        if messages := read(consumer):
            for message in messages:
                producer.produce(os.environ["OUTPUT"], message.value(), message.key(), on_delivery=delivered)
            producer.flush()
            consumer.commit(asynchronous=False)


if __name__ == "__main__":
    main()
