"""Faults of what Flink keeps to go on from."""
