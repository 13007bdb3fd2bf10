"""An Iceberg table of the user's own, in the run's catalog. The second reader takes its files from pyiceberg."""

from __future__ import annotations

from pathlib import Path

from streamproof.evidence.folder import EvidenceError
from streamproof.jobs.job import Job
from streamproof.sinks.iceberg.table import SnapshotsReader, catalog, contents, files_again, history, history_again
from streamproof.sinks.lakehouse.history import Files, History
from streamproof.sinks.lakehouse.rows import LakeRows
from streamproof.sinks.lakehouse.table import Contents
from streamproof.testbed.embedded import Testbed


class IcebergRows(LakeRows):
    extra = "iceberg"

    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        super().create(job, testbed, partitions)
        catalog(job, testbed.direct_postgres).create()

    def contents(self, job: Job, testbed: Testbed) -> Contents:
        return contents(_metadata(job, testbed))

    def history(self, job: Job, testbed: Testbed) -> History:
        return history(_metadata(job, testbed))

    def history_again(self, job: Job, testbed: Testbed) -> list[Files | None]:
        return history_again(_metadata(job, testbed))

    def files_again(self, job: Job, testbed: Testbed) -> list[Path]:
        return list(files_again(_metadata(job, testbed)))

    def reader(self, job: Job, testbed: Testbed) -> SnapshotsReader:
        return SnapshotsReader(catalog(job, testbed.direct_postgres), *_named(job))

    def delete(self, job: Job, testbed: Testbed) -> None:
        super().delete(job, testbed)
        catalog(job, testbed.direct_postgres).drop()


def _named(job: Job) -> tuple[str, str]:
    """The namespace and the name of the table."""
    namespace, _, name = str(job.output["table"]).rpartition(".")
    return namespace, name


def _metadata(job: Job, testbed: Testbed) -> Path:
    """Raises EvidenceError when there is no such table."""
    found = catalog(job, testbed.direct_postgres)
    current = found.metadata(*_named(job))
    if current is None:
        there = ", ".join(found.tables()) or "no table"
        raise EvidenceError(f"the job made no table {job.output['table']} in the catalog {{jdbc_url}}; there is: {there}")
    return current
