"""The sinks there are, by name. Importing this module imports neither Kafka nor Spark."""

from __future__ import annotations

from streamproof import registry
from streamproof.jobs.job import Job
from streamproof.sinks.sink import Sink

SINKS: dict[str, Sink] = registry.registered("sinks")


def of(job: Job) -> Sink:
    """The sink that a job delivers to."""
    return SINKS[job.sink]
