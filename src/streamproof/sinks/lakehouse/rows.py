"""A table of the user's own, with whatever columns it has: what a reader of its newest version reads.

As a folder of Parquet files whose names the table's metadata give; the second reader takes them from another library.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from streamproof import extras
from streamproof.jobs.job import Job
from streamproof.sinks.files.rows import FileRows
from streamproof.sinks.lakehouse.table import Contents, File
from streamproof.testbed.embedded import Testbed


class LakeRows(FileRows):
    extra: ClassVar[str]

    def contents(self, job: Job, testbed: Testbed) -> Contents:
        """Raises EvidenceError when there is no table."""
        raise NotImplementedError

    def files(self, job: Job, testbed: Testbed) -> list[Path]:
        return [file.path for file in self._files(job, testbed)]

    def logged(self, job: Job) -> bool:
        return True

    def places(self, job: Job, testbed: Testbed) -> dict[int, str]:
        return {number: file.told for number, file in enumerate(self._files(job, testbed))}

    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        extras.require(self.extra)
        super().create(job, testbed, partitions)

    def end(self, job: Job, testbed: Testbed) -> Any:
        return self.contents(job, testbed).end

    def _files(self, job: Job, testbed: Testbed) -> list[File]:
        return list(self.contents(job, testbed).files)
