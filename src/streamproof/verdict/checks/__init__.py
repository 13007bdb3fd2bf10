"""Checkers: each finds the records that show one kind of anomaly."""
