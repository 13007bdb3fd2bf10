"""A table of the user's own, with whatever columns it has: what a reader of its newest version reads.

As a folder of Parquet files whose names the table's metadata give; the second reader takes them from another library.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from streamproof import extras
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.versions import Identities
from streamproof.jobs.job import Job
from streamproof.sinks.files.rows import FileRows, identities
from streamproof.sinks.lakehouse import history
from streamproof.sinks.lakehouse.history import Files, History
from streamproof.sinks.lakehouse.table import Contents, File
from streamproof.testbed.embedded import Testbed


class LakeRows(FileRows):
    extra: ClassVar[str]

    def contents(self, job: Job, testbed: Testbed) -> Contents:
        """Raises EvidenceError when there is no table."""
        raise NotImplementedError

    def history(self, job: Job, testbed: Testbed) -> History:
        """Every version, as the table's metadata have it. Raises EvidenceError when they are damaged."""
        raise NotImplementedError

    def history_again(self, job: Job, testbed: Testbed) -> Sequence[Files | None]:
        """The files of every version as another reader finds them; None for one that it cannot read. Raises EvidenceError."""
        raise NotImplementedError

    def drain(self, folder: RunFolder, job: Job, testbed: Testbed, timeout_s: float) -> dict[str, Any]:
        if job.delivers_identity:
            history.write(folder, job.files, self.history(job, testbed), self.history_again(job, testbed), lambda path: _shown(path, job))
        return super().drain(folder, job, testbed, timeout_s)

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


def _shown(path: Path, job: Job) -> Identities | None:
    """The identity of each row of a file of some version; None where the file is not there any more. Raises EvidenceError."""
    found = identities(path, job)
    if found is None:
        return None
    return pa.array([one and one[0] for one in found], pa.int32()), pa.array([one and one[1] for one in found], pa.int64())
