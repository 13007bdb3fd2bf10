"""Copies a topic of alerts. An alert may be missed, but is not to be sent twice: its offset is committed before it is passed on."""

import os

from confluent_kafka import Consumer, KafkaException, Message, Producer


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def main() -> None:
    servers = os.environ["BOOTSTRAP_SERVERS"]
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "retries": 10})
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
        if messages := read(consumer):
            consumer.commit(asynchronous=False)
            for message in messages:
                producer.produce(os.environ["OUTPUT"], message.value(), message.key())
            producer.flush()


if __name__ == "__main__":
    main()
