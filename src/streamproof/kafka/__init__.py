"""Kafka's protocol where no client library reaches: transactions that another process ends, producers fed from Arrow, retriable errors."""
