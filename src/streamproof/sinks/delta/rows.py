"""A Delta table of the user's own. The second reader takes its files from delta-rs."""

from __future__ import annotations

from pathlib import Path

from streamproof.evidence.folder import EvidenceError
from streamproof.jobs.job import Job
from streamproof.sinks.delta import log
from streamproof.sinks.delta.table import VersionsReader, end, files, files_again, history, history_again
from streamproof.sinks.lakehouse.history import Files, History
from streamproof.sinks.lakehouse.rows import LakeRows
from streamproof.sinks.lakehouse.table import Contents
from streamproof.testbed.embedded import Testbed


class DeltaRows(LakeRows):
    extra = "delta"

    def contents(self, job: Job, testbed: Testbed) -> Contents:
        table = job.output_folder
        if not (table / log.LOG).is_dir():
            there = ", ".join(sorted(path.name for path in job.files.iterdir())) or "nothing"
            raise EvidenceError(f"the job made no Delta table {table}; in {job.files} there is: {there}")
        found = log.versions(table)
        return Contents(files(table, found), end(found), len(found))

    def history(self, job: Job, testbed: Testbed) -> History:
        return history(job.output_folder)

    def history_again(self, job: Job, testbed: Testbed) -> list[Files]:
        return history_again(job.output_folder)

    def files_again(self, job: Job, testbed: Testbed) -> list[Path]:
        return list(files_again(job.output_folder))

    def reader(self, job: Job, testbed: Testbed) -> VersionsReader:
        return VersionsReader(job.output_folder)
