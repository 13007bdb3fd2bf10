"""Copies a topic, in Kafka transactions. One that cannot be committed is aborted, and the job goes on."""

import os
import signal

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

TOO_LONG_S = 45


def read(consumer: Consumer) -> list[Message]:
    messages = consumer.consume(int(os.environ["BATCH"]), 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    return messages


def forward(producer: Producer, consumer: Consumer, messages: list[Message]) -> None:
    ends = {message.partition(): message.offset() + 1 for message in messages}
    offsets = [TopicPartition(os.environ["TOPIC"], partition, end) for partition, end in ends.items()]
    producer.begin_transaction()
    for message in messages:
        producer.produce(os.environ["OUTPUT"], message.value(), message.key())
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
    producer.commit_transaction()


def main() -> None:
    servers = os.environ["BOOTSTRAP_SERVERS"]
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": f"{os.environ['JOB']}.copy",
            "message.timeout.ms": 4000,
        }
    )
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
    while True:
        if messages := read(consumer):
            signal.alarm(TOO_LONG_S)
            try:
                forward(producer, consumer, messages)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                print(f"aborted: {error}", flush=True)
                producer.abort_transaction()
            signal.alarm(0)


if __name__ == "__main__":
    main()
