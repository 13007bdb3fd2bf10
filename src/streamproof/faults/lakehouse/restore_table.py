"""``restore_table``: the Delta table is restored to an older version and the checkpoint rewound to it, and the driver killed.

The model: the way back after a bad deployment. Somebody restores the table to what it was some versions ago, takes the checkpoint back by
as many batches, and starts the job again. The batches run again; but RESTORE is a new version, and the table still remembers the
transactions of those that it took back. A sink that asks for them writes nothing -> LOST, without a word. MERGE and a plain append write
them again, and until then a record is missing whose offset was committed -> OFFSET_AHEAD.

Done while the driver stands still (SIGSTOP) and nothing is planned behind the last commit; the table by delta-rs, the checkpoint by
deleting ``offsets`` and ``commits`` of the last ``versions`` batches.

Evidence: a version RESTORE, with the files of the older one; the driver's processes are gone; the job was started again and ran those
batches again.
Checked against: Delta 4.4 on Spark 4.1, delta-rs 1.6, delta-io/delta#1813.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from pydantic import Field

from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.spark.lose_last_commit import LoseLastCommit
from streamproof.faults.spark.rewind_checkpoint import rewound
from streamproof.jobs.profile import JobProfile, Trait
from streamproof.sinks.delta import log
from streamproof.verdict.anomaly import Anomaly

RESTORE = "RESTORE"


class RestoreTableParameters(Parameters):
    versions: int = Field(2, ge=1, le=20, description="How many versions, and batches, it goes back")


class RestoreTable(LoseLastCommit):
    name = "restore_table"
    summary = "RESTORE the Delta table to an older version, rewind the checkpoint by as many batches, and SIGKILL the driver"
    target = "the table, the checkpoint, and the driver"
    parameters_model: type[Parameters] = RestoreTableParameters
    of_traits = frozenset({Trait.RESUMES_FROM_CHECKPOINT, Trait.DELTA_TABLE})

    def provokes(self, profile: JobProfile, parameters: dict[str, Any]) -> list[Anomaly]:
        shown = Anomaly.LOST if Trait.SKIPS_COMPLETE_OUTPUT in profile.traits else Anomaly.OFFSET_AHEAD
        return sorted({shown} - profile.guarantee.forbidden)  # what breaks the promise makes the run FAILED

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Not for chance: what a table remembers that was restored is beyond most promises."""
        return None

    def batches(self, parameters: Any) -> int:
        return 2 + int(parameters.versions)

    def damage(self, run: RunContext, parameters: Any, checkpoint: Path, batch: int) -> dict[str, Any]:
        import deltalake

        newest, back = log.versions(run.job.files)[-1].number, parameters.versions
        if newest < back or batch < back:
            raise FaultError(f"the table has versions 0 to {newest}, the checkpoint batches 0 to {batch}: {back} back is before the first")
        deltalake.DeltaTable(str(run.job.files)).restore(newest - back)
        return {"to": newest - back, "from": newest, "deleted": rewound(checkpoint, batch, back)}

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        history = log.versions(run.job.files)
        restored = [version for version in history if version.number > target["from"] and version.operation == RESTORE]
        same = bool(restored) and set(log.active(history[: restored[0].number + 1])) == set(log.active(history[: target["to"] + 1]))
        detail = f"version {restored[0].number}, back to version {target['to']}" if restored else "no such version"
        return [EvidenceCheck("the table was restored", same, detail), *super().evidence(run, parameters, target)]
