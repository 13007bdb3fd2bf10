"""Copies a topic. When nothing more comes, it commits how far it has read."""

import os

from confluent_kafka import Consumer, KafkaException, Message, Producer


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
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([os.environ["TOPIC"]])
    behind = False
    while True:
        messages = read(consumer)
        for message in messages:
            producer.produce(os.environ["OUTPUT"], message.value(), message.key(), on_delivery=delivered)
        producer.poll(0)
        if behind and not messages:
            producer.flush()
            consumer.commit(asynchronous=False)
        behind = bool(messages)


if __name__ == "__main__":
    main()
