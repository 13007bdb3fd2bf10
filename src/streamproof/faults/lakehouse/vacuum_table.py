"""``vacuum_table``: the Delta table is compacted and at once vacuumed, with no time for those who still read what was replaced.

The model: VACUUM with a retention of 0 hours, against Delta's advice, because the bucket is full. Files that no version shows any more are
deleted. Who planned a read before the compaction finds them gone, and fails: a MERGE that is under way does, and is run again. Nothing that
the newest version shows may be missing.

A stream that has not read those versions yet finds them gone, too: it must say so, and not pass over them.

Done by delta-rs. What is about to be deleted is kept for the drain, beside the table, for the older versions showed it.

Evidence: the version OPTIMIZE; files of the table that are gone; a batch that the job committed afterwards.
Checked against: Delta 4.4 on Spark 4.1, delta-rs 1.6.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.lakehouse import tables
from streamproof.faults.lakehouse.compact_table import CompactDeltaTable


class VacuumTable(CompactDeltaTable):
    name = "vacuum_table"
    summary = "Compact the Delta table and VACUUM it with no retention at all, beside the job"

    def inject(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> None:
        import deltalake
        from deltalake.exceptions import DeltaError

        from streamproof.sinks.lakehouse import history

        super().inject(run, parameters, target)
        folder = Path(target["table"])
        table = deltalake.DeltaTable(str(folder))
        try:
            if folder == tables.folder(run):  # the drain reads no other
                history.keep(
                    run.folder, folder, [folder / name for name in table.vacuum(0, dry_run=True, enforce_retention_duration=False)]
                )
            gone = table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        except DeltaError as error:
            raise FaultError(f"the table was not vacuumed: {error}") from error
        target |= {"deleted": sorted(Path(name).name for name in gone)}

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        left = [name for name in target["deleted"] if any(Path(target["table"]).rglob(name))]
        gone = bool(target["deleted"]) and not left
        return [
            EvidenceCheck("files of older versions are gone", gone, f"{len(target['deleted'])} deleted, {len(left)} still there"),
            *super().evidence(run, parameters, target),
        ]
