"""An Iceberg table of the user's own: in the run's catalog in PostgreSQL, or in a folder that is its own catalog. The second reader takes
its files from pyiceberg."""

from __future__ import annotations

import re
from pathlib import Path

from streamproof.evidence.folder import EvidenceError
from streamproof.jobs.job import Job
from streamproof.sinks.iceberg.table import ByMetadata, SnapshotsReader, catalog, files_again
from streamproof.sinks.lakehouse.rows import LakeRows
from streamproof.testbed.embedded import Testbed

_VERSION = re.compile(r"v(\d+)\.metadata\.json")


class _IcebergRows(ByMetadata, LakeRows):
    def files_again(self, job: Job, testbed: Testbed) -> list[Path]:
        return list(files_again(self.metadata(job, testbed)))


class IcebergRows(_IcebergRows):
    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        super().create(job, testbed, partitions)
        catalog(job, testbed.direct_postgres).create()

    def metadata(self, job: Job, testbed: Testbed) -> Path:
        found = catalog(job, testbed.direct_postgres)
        current = found.metadata(*_named(job))
        if current is None:
            there = ", ".join(found.tables()) or "no table"
            raise EvidenceError(f"the job made no table {job.output['table']} in the catalog {{jdbc_url}}; there is: {there}")
        return current

    def reader(self, job: Job, testbed: Testbed) -> SnapshotsReader:
        found, table = catalog(job, testbed.direct_postgres), _named(job)
        return SnapshotsReader(lambda: found.metadata(*table))

    def delete(self, job: Job, testbed: Testbed) -> None:
        super().delete(job, testbed)
        catalog(job, testbed.direct_postgres).drop()


class IcebergFolderRows(_IcebergRows):
    def metadata(self, job: Job, testbed: Testbed) -> Path:
        current = newest(_folder(job))
        if current is None:
            there = ", ".join(sorted(str(path.parent.parent.relative_to(job.files)) for path in job.files.rglob("v1.metadata.json")))
            raise EvidenceError(f"the job made no Iceberg table {_folder(job)}; tables in {job.files}: {there or 'none'}")
        return current

    def reader(self, job: Job, testbed: Testbed) -> SnapshotsReader:
        return SnapshotsReader(lambda: newest(_folder(job)))


def newest(table: Path) -> Path | None:
    """The newest metadata file of a table whose catalog is the file system; None where there is no table. Versions count up, and to bring
    the next one is to commit. What the hint beside them says may be older."""
    versions = {int(found[1]): path for path in (table / "metadata").glob("v*.metadata.json") if (found := _VERSION.fullmatch(path.name))}
    return versions[max(versions)] if versions else None


def _named(job: Job) -> tuple[str, str]:
    """The namespace and the name of the table."""
    namespace, _, name = str(job.output["table"]).rpartition(".")
    return namespace, name


def _folder(job: Job) -> Path:
    """Where a table lies whose catalog is the file system."""
    return job.files.joinpath(*_named(job))
