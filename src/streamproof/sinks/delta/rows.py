"""A Delta table of the user's own, with whatever columns it has: what a reader of its newest version reads.

As a folder of Parquet files whose names the table's log gives; the second reader takes them from delta-rs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamproof import extras
from streamproof.evidence.folder import EvidenceError
from streamproof.jobs.job import Job
from streamproof.sinks.delta import log
from streamproof.sinks.delta.table import VersionsReader, end, files_again
from streamproof.sinks.files.rows import FileRows, root
from streamproof.testbed.embedded import Testbed


class DeltaRows(FileRows):
    def files(self, job: Job) -> list[Path]:
        """Raises EvidenceError when there is no table."""
        table = root(job)
        if not (table / log.LOG).is_dir():
            there = ", ".join(sorted(path.name for path in job.files.iterdir())) or "nothing"
            raise EvidenceError(f"the job made no Delta table {table}; in {job.files} there is: {there}")
        return [table / name for name in log.active(log.versions(table))]

    def files_again(self, job: Job) -> list[Path]:
        return list(files_again(root(job)))

    def logged(self, job: Job) -> bool:
        return True

    def places(self, job: Job) -> dict[int, str]:
        return {number: file.version.told for number, file in enumerate(log.active(log.versions(root(job))).values())}

    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        extras.require("delta")
        super().create(job, testbed, partitions)

    def end(self, job: Job, testbed: Testbed) -> Any:
        return end(log.versions(root(job)))

    def reader(self, job: Job, testbed: Testbed) -> VersionsReader:
        return VersionsReader(root(job))
