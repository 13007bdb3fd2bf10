"""Copies a topic, in Kafka transactions, from partitions that it assigns to itself."""

import os
import signal
import uuid

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

TOO_LONG_S = 30


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def forward(producer: Producer, consumer: Consumer, messages: list[Message]) -> None:
    ends = {message.partition(): message.offset() + 1 for message in messages}
    offsets = [TopicPartition(os.environ["TOPIC"], partition, end) for partition, end in ends.items()]
    signal.alarm(TOO_LONG_S)
    producer.begin_transaction()
    for message in messages:
        producer.produce(os.environ["OUTPUT"], message.value(), message.key())
    producer.flush()
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
    producer.commit_transaction()
    signal.alarm(0)


def main() -> None:
    servers, topic = os.environ["BOOTSTRAP_SERVERS"], os.environ["TOPIC"]
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": f"{os.environ['JOB']}.{uuid.uuid4()}",
            "transaction.timeout.ms": 30_000,
        }
    )
    producer.init_transactions()
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": os.environ["GROUP"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition) for partition in partitions])
    while True:
        if messages := read(consumer):
            forward(producer, consumer, messages)


if __name__ == "__main__":
    main()
