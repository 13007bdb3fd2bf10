"""The outputs there are: each is made before a run, read while the job runs, drained to its end, and deleted. Importing this module imports
neither Kafka nor Spark."""

from __future__ import annotations

from typing import Any, Protocol

from streamproof.engines.spark import strategies
from streamproof.engines.spark.job import Job
from streamproof.evidence.folder import RunFolder
from streamproof.sinks.files.folder import FilesOutput
from streamproof.sinks.kafka.topic import KafkaOutput
from streamproof.sinks.postgres.drain import PostgresOutput
from streamproof.sinks.sink import Sink
from streamproof.testbed.embedded import Testbed


class Reader(Protocol):
    """Somebody who reads the output while it is written."""

    def visible(self) -> dict[int, int]:
        """How many records of each batch are visible by now. Asked again and again."""

    def close(self) -> None: ...


class Output(Protocol):
    """One kind of output."""

    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        """Make the job's output, empty. ``partitions`` is how many the input has."""

    def drain(self, folder: RunFolder, job: Job, testbed: Testbed, timeout_s: float) -> dict[str, Any]:
        """Read everything that was delivered into ``delivered/``; write and return ``delivered/drain.json``. May be repeated."""

    def reader(self, job: Job, testbed: Testbed) -> Reader:
        """A reader that sees what any reader of this output sees."""

    def load(self) -> None:
        """Import what the drain needs, while there is time: compiled code takes a second. May be repeated."""

    def delete(self, job: Job, testbed: Testbed) -> None:
        """Delete the job's output, if there is any. May be repeated."""


OUTPUTS: dict[Sink, Output] = {Sink.KAFKA: KafkaOutput(), Sink.FILES: FilesOutput(), Sink.POSTGRES: PostgresOutput()}


def of(job: Job) -> Output:
    """The output of a job, by its strategy's sink."""
    return OUTPUTS[strategies.get(job.strategy).sink]
