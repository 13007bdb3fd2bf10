"""A Kafka topic as output: made, read while the job runs, drained to its end."""

from streamproof.sinks.sink import Deferred

KAFKA_TOPIC = Deferred("kafka", frozenset({"kafka"}), "streamproof.sinks.kafka.topic:KafkaTopic")
