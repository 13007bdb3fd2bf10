"""What a reader finds in a topic."""

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from streamproof.testbed.embedded import Testbed

WAIT_S = 20.0


def delivered(testbed: Testbed, topic: str, isolation: str = "read_committed", partitions: int = 2) -> list[Message]:
    """All that is there now, by partition as it comes."""
    options = {"bootstrap.servers": testbed.direct_kafka, "group.id": "delivered", "isolation.level": isolation, "fetch.wait.max.ms": 10}
    consumer = Consumer({**options, "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found, ended = [], set()
    try:
        while len(ended) < partitions:
            message = consumer.poll(WAIT_S)
            assert message is not None, "no answer"
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
    finally:
        consumer.close()
    return found
