"""``rewind_checkpoint``: the checkpoint's last batches are taken back, and the driver killed, so that it plans and runs them again.

The model: a checkpoint that was restored from a backup which is some batches older than the output. Unlike after ``lose_last_commit`` the
batches are also *planned* again: their numbers come back, and the records behind a number may be others when more has arrived since. What
appends writes them again -> DUPLICATED. What remembers numbers skips them: right while they bring the same records, LOST when they do not.

Done as ``lose_last_commit`` does it: while the driver stands still (SIGSTOP) and nothing is planned behind the last commit; ``offsets`` and
``commits`` of the last ``count`` batches are deleted.

Evidence: as of ``lose_last_commit``.
Checked against: Spark 4.1 (``MicroBatchExecution.populateStartOffsets``: it goes on behind the last batch of ``offsets``).
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from pydantic import Field

from streamproof.faults.fault import FaultError, Parameters, RunContext
from streamproof.faults.spark.lose_last_commit import LoseLastCommit, deleted
from streamproof.jobs.profile import JobProfile


class RewindCheckpointParameters(Parameters):
    count: int = Field(2, ge=1, le=20, description="How many batches it goes back")


class RewindCheckpoint(LoseLastCommit):
    name = "rewind_checkpoint"
    summary = "Take the checkpoint back by some batches while the driver is stopped, and SIGKILL it: they are planned and run again"
    parameters_model: type[Parameters] = RewindCheckpointParameters

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Not for chance: a plan that differs from the first one is beyond most promises."""
        return None

    def batches(self, parameters: Any) -> int:
        return 2 + int(parameters.count)

    def damage(self, run: RunContext, parameters: Any, checkpoint: Path, batch: int) -> dict[str, Any]:
        if batch < parameters.count:
            raise FaultError(f"the checkpoint has batches 0 to {batch}: {parameters.count} back is too far")
        return {"deleted": rewound(checkpoint, batch, parameters.count)}


def rewound(checkpoint: Path, batch: int, count: int) -> bool:
    """Delete the last ``count`` batches, the newest of which is ``batch``; whether they are gone."""
    files = [(kind, str(number)) for kind in ("commits", "offsets") for number in range(batch - count + 1, batch + 1)]
    gone = [deleted(checkpoint / kind, name) for kind, name in files]
    return all(gone)
