"""Copies a topic: flush, and only then commit."""

import os

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def delivered(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def main() -> None:
    servers = os.environ["BOOTSTRAP_SERVERS"]
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
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
    while True:
        messages = read(consumer)
        for message in messages:
            producer.produce(os.environ["OUTPUT"], message.value(), message.key(), on_delivery=delivered)
        if messages:
            if producer.flush(20) > 0:
                raise RuntimeError("records are left in the queue")
            consumer.commit(asynchronous=False)


if __name__ == "__main__":
    main()
