"""Copies a topic, in Kafka transactions. Each record says in a header where it came from: so a start finds in the output where to go on."""

import os
import signal

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

SERVERS, OUTPUT = os.environ["BOOTSTRAP_SERVERS"], os.environ["OUTPUT"]
TOO_LONG_S = 30

ends: dict[int, int] = {}


def find_ends() -> None:
    """Up to where each partition of the input was copied, from the whole output."""
    reader = Consumer(
        {
            "bootstrap.servers": SERVERS,
            "group.id": f"{os.environ['JOB']}-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    unread = set(reader.list_topics(OUTPUT, 30).topics[OUTPUT].partitions)
    reader.assign([TopicPartition(OUTPUT, partition, OFFSET_BEGINNING) for partition in unread])
    while unread:
        message = reader.poll(30)
        if message is None:
            raise TimeoutError("the output could not be read to its end")
        if message.error() is None:
            partition, offset = map(int, dict(message.headers())["source"].split(b"/"))
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        elif message.error().code() == KafkaError._PARTITION_EOF:
            unread.discard(message.partition())
        else:
            raise KafkaException(message.error())
    reader.close()


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


def forward(producer: Producer, messages: list[Message]) -> None:
    signal.alarm(TOO_LONG_S)
    producer.begin_transaction()
    for message in messages:
        source = f"{message.partition()}/{message.offset()}"
        producer.produce(OUTPUT, message.value(), message.key(), headers={"source": source})
        ends[message.partition()] = message.offset() + 1
    producer.flush()
    producer.commit_transaction()
    signal.alarm(0)


def main() -> None:
    producer = Producer({"bootstrap.servers": SERVERS, "transactional.id": f"{os.environ['JOB']}.copy"})
    producer.init_transactions()
    find_ends()
    consumer = Consumer(
        {
            "bootstrap.servers": SERVERS,
            "group.id": os.environ["GROUP"],
            "group.instance.id": "copy-0",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([os.environ["TOPIC"]], on_assign=assigned)
    committed: dict[int, int] = {}
    while True:
        if messages := read(consumer):
            forward(producer, messages)
        if ends != committed and consumer.assignment():
            committed = dict(ends)
            offsets = [TopicPartition(os.environ["TOPIC"], partition, end) for partition, end in ends.items()]
            consumer.commit(offsets=offsets, asynchronous=False)


if __name__ == "__main__":
    main()
