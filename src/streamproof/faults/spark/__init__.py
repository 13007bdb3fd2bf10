"""Spark's master, workers and executors, and its checkpoint."""
