"""``rollback_table``: the Iceberg table is rolled back to an older snapshot and the checkpoint rewound to it, and the driver killed.

The model: the way back after a bad deployment, as in ``restore_table``. Iceberg's rollback makes an older snapshot the current one: what
came after it is no ancestor of the table's any more, and with it goes the memory of those epochs. The batches run again and are written
again: nothing is lost. Until then a record is missing whose offset was committed -> OFFSET_AHEAD.

Done while the driver stands still (SIGSTOP) and nothing is planned behind the last commit; the table by pyiceberg, the checkpoint by
deleting ``offsets`` and ``commits`` of the last ``snapshots`` batches.

Evidence: the table's current snapshot was the older one; the driver's processes are gone; the job was started again and ran those batches
again.
Checked against: Iceberg 1.11 on Spark 4.1, pyiceberg 0.12.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from pydantic import Field

from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.lakehouse import tables
from streamproof.faults.spark.lose_last_commit import LoseLastCommit
from streamproof.faults.spark.rewind_checkpoint import rewound
from streamproof.jobs.profile import JobProfile, Trait
from streamproof.verdict.anomaly import Anomaly


class RollbackTableParameters(Parameters):
    snapshots: int = Field(2, ge=1, le=20, description="How many snapshots, and batches, it goes back")


class RollbackTable(LoseLastCommit):
    name = "rollback_table"
    summary = "Roll the Iceberg table back to an older snapshot, rewind the checkpoint by as many batches, and SIGKILL the driver"
    target = "the table, the checkpoint, and the driver"
    parameters_model: type[Parameters] = RollbackTableParameters
    of_traits = frozenset({Trait.RESUMES_FROM_CHECKPOINT, Trait.ICEBERG_TABLE})

    def provokes(self, profile: JobProfile, parameters: dict[str, Any]) -> list[Anomaly]:
        return sorted({Anomaly.OFFSET_AHEAD} - profile.guarantee.forbidden)  # what breaks the promise makes the run FAILED

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Not for chance: what is taken back and comes again is beyond most promises."""
        return None

    def batches(self, parameters: Any) -> int:
        return 2 + int(parameters.snapshots)

    def damage(self, run: RunContext, parameters: Any, checkpoint: Path, batch: int) -> dict[str, Any]:
        table, back = tables.opened(run), parameters.snapshots
        history = [entry.snapshot_id for entry in table.history()]
        if len(history) <= back or batch < back:
            raise FaultError(f"the table has {len(history)} snapshots, the checkpoint batches 0 to {batch}: {back} is too far")
        table.manage_snapshots().set_current_snapshot(snapshot_id=history[-1 - back]).commit()
        return {"to": history[-1 - back], "taken_back": history[-back:], "deleted": rewound(checkpoint, batch, back)}

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        from streamproof.sinks.iceberg import metadata

        current = tables.metadata_file(run)
        line = [snapshot.id for snapshot in metadata.snapshots(current)] if current is not None else []
        back = target["to"] in line and not set(target["taken_back"]) & set(line)
        detail = f"to the snapshot {target['to']}; {len(target['taken_back'])} are none of its line any more"
        return [EvidenceCheck("the table was rolled back", back, detail), *super().evidence(run, parameters, target)]
