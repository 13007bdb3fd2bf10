"""One job of one run, resolved: what its engine needs to start it, what sinks need to find its output. ``job.json`` in the run's folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from streamproof.evidence.folder import EvidenceError, RunFolder, write_atomically
from streamproof.evidence.locations import Location
from streamproof.kafka.servers import Access, Servers


@dataclass(frozen=True, kw_only=True)
class Job:
    """A streaming job that reads a Kafka topic. An engine adds what it alone needs in a subclass.

    ``name`` is its own in the run: the consumer group, what transactional ids begin with, the schema of its tables. ``bootstrap`` is
    Kafka's address for its driver, ``executors_bootstrap`` for its executors; empty is the same one. ``postgres`` is a connection string
    without a secret. ``sink`` is the kind of its output. ``start`` counts its starts from 1. ``batch_records`` is how many records it
    should commit at once at most. ``transaction_timeout_ms`` is how long a transaction of it may stay open. ``reads_identity`` and
    ``delivers_identity`` are the locations of a record's identity in its input and its output, ``output`` is what its sink must know of an
    output of the job's own. ``access`` is how its clients get into Kafka (:class:`streamproof.kafka.servers.Access`), empty in plaintext.
    """

    engine: str
    name: str
    folder: str
    sink: str
    bootstrap: str
    input_topic: str
    output_topic: str
    batch_records: int
    transaction_timeout_ms: int
    executors_bootstrap: str = ""
    postgres: str = ""
    start: int = 0
    reads_identity: dict[str, Any] = field(default_factory=dict)
    delivers_identity: dict[str, Any] = field(default_factory=dict)
    output: dict[str, Any] = field(default_factory=dict)
    access: dict[str, str] = field(default_factory=dict)

    @property
    def location_read(self) -> Location:
        return Location.of(self.reads_identity)

    @property
    def location_delivered(self) -> Location:
        return Location.of(self.delivers_identity)

    @property
    def task_bootstrap(self) -> str:
        return self.executors_bootstrap or self.bootstrap

    @property
    def kafka(self) -> Servers:
        """Kafka as the driver reaches it."""
        return Servers(self.bootstrap, Access.of(self.access))

    @property
    def task_kafka(self) -> Servers:
        """Kafka as the tasks reach it."""
        return Servers(self.task_bootstrap, Access.of(self.access))

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.folder)

    @property
    def files(self) -> Path:
        """The folder that a sink of files writes to."""
        return self.run.path / "output"

    @property
    def output_folder(self) -> Path:
        """Where a job of the user's own puts its files or its Delta table, below that folder; of a job of ours the folder itself."""
        return self.files / str(self.output.get("path", ""))

    def checkpoint(self, name: str = "spark") -> Path:
        return self.run.checkpoint / name

    @property
    def state(self) -> Path:
        """The folder of a job of the user's own, which outlives its starts."""
        return self.checkpoint("state")

    def write(self) -> None:
        write_atomically(self.run.path / "job.json", json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, folder: RunFolder, start: int = 0) -> Self:
        """The job of a run, without what another class knows of it. Raises EvidenceError when the folder has no job."""
        path = folder.path / "job.json"
        stored = folder.read_json(path)
        names = {each.name for each in fields(cls)}
        try:
            return replace(cls(**{name: value for name, value in stored.items() if name in names}), start=start)
        except TypeError as error:
            raise EvidenceError(f"{path} does not describe a job of this kind: {error}") from error
