"""A Kafka topic as output: made, read while the job runs, drained to its end."""
