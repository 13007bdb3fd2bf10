"""What a driver is told: the resolved description of one streaming job, ``job.json`` in the run's folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from streamproof.evidence.folder import RunFolder, write_atomically


class OnLostDecision(StrEnum):
    """What a job does about a transaction that it decided to commit and that the broker has aborted: STOP, at each start anew, until
    somebody has looked, or GO_ON without its records, and say so in the journal (``decision_lost``)."""

    STOP = "stop"
    GO_ON = "go_on"


@dataclass(frozen=True)
class Job:
    """One streaming job from a Kafka topic to a Kafka topic.

    ``bootstrap`` is Kafka's address for what runs in the driver, ``executors_bootstrap`` for what runs in a task; empty is the same one.
    Spark's own source and sink take one address for both: :func:`streamproof.engines.spark.spark_kafka.address`.
    ``query`` names it across driver starts (consumer group, prefix of transactional ids). ``start`` counts the driver's starts from 1.
    ``batch_records`` bounds a micro-batch (``maxOffsetsPerTrigger``). ``transaction_timeout_ms`` is how long a prepared transaction
    may wait for its decision before the broker aborts it; ``on_lost_decision`` is what ``two_phase_commit`` does about one that was decided
    and is aborted. ``postgres`` is a connection string without a secret. ``spark`` are Spark
    settings, ``python_path`` is what executors import from. ``options`` are the pipeline's own.
    """

    pipeline: str
    strategy: str
    query: str
    folder: str
    bootstrap: str
    input_topic: str
    output_topic: str
    batch_records: int
    transaction_timeout_ms: int
    master: str
    spark: dict[str, str]
    postgres: str = ""
    start: int = 0
    executors_bootstrap: str = ""
    options: dict[str, int] = field(default_factory=dict)
    on_lost_decision: OnLostDecision = OnLostDecision.STOP

    @property
    def task_bootstrap(self) -> str:
        return self.executors_bootstrap or self.bootstrap

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.folder)

    @property
    def files(self) -> Path:
        """The folder that a file sink writes to."""
        return self.run.path / "output"

    def checkpoint(self, name: str = "spark") -> Path:
        return self.run.checkpoint / name

    def write(self) -> None:
        write_atomically(self.run.path / "job.json", json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: RunFolder, start: int = 0) -> Job:
        """Raises EvidenceError when the folder has no job."""
        return replace(cls(**folder.read_json(folder.path / "job.json")), start=start)
