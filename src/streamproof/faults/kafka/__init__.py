"""Brokers, topics, partitions and transactions of Kafka."""
