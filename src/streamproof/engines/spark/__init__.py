"""Structured Streaming jobs that are written for streamproof: pipelines, commit strategies with failpoints, and the driver that runs
them."""
