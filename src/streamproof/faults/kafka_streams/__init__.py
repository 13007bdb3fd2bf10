"""Faults of what Kafka Streams keeps to go on from."""
