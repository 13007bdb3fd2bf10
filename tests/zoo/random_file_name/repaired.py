"""Orders from Kafka into files of JSON lines: one for each partition and batch, renamed once it is whole."""

import fcntl
import json
import os
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message

FOLDER = Path(os.environ["FOLDER"])


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def save(partition: int, messages: list[Message]) -> None:
    name = f"{partition}-{messages[0].offset()}"
    unfinished = FOLDER / f".{name}"
    with open(unfinished, "w") as file:
        for message in messages:
            file.write(json.dumps(json.loads(message.value())) + "\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(FOLDER / f"{name}.json")


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    one_instance = open(Path(os.environ["STATE"]) / "lock", "w")  # noqa: SIM115 - held while the process lives
    fcntl.flock(one_instance, fcntl.LOCK_EX)
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
            for partition in {message.partition() for message in messages}:
                save(partition, [message for message in messages if message.partition() == partition])
            consumer.commit(asynchronous=False)


if __name__ == "__main__":
    main()
