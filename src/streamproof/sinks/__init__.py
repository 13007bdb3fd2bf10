"""What jobs deliver to, a folder for each kind: a Kafka topic, a PostgreSQL table, a folder of files."""
