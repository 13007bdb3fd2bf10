"""``expire_snapshots``: another writer commits to the Iceberg table, all older snapshots expire, and the driver is killed before it has
committed the newest batch.

The model: maintenance that runs by a schedule beside the job. A compaction, or any other writer, makes the newest snapshot; an expiry that
keeps only that one follows; then the driver dies between the table's commit and the checkpoint's. Iceberg's own sink looks for its query's
id and epoch in the snapshots that there are. It finds none, takes the batch for a new one, and writes it a second time -> DUPLICATED,
without a word. MERGE is not harmed: it asks the rows.

Done while the driver stands still (SIGSTOP) and nothing is planned behind the last commit: pyiceberg appends nothing, which is a commit all
the same, and expires every snapshot but that; then ``commits/N`` is deleted and the driver killed.

Evidence: none of the snapshots of before is in the table, and what it holds is what it held; as of ``lose_last_commit``.
Checked against: Iceberg 1.11 on Spark 4.1 (``SparkWrite.BaseStreamingWrite``), pyiceberg 0.12.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.lakehouse import tables
from streamproof.faults.spark.lose_last_commit import LosesMemory
from streamproof.jobs.profile import Trait


class ExpireSnapshots(LosesMemory):
    name = "expire_snapshots"
    summary = "Another writer commits to the Iceberg table, older snapshots expire, the checkpoint loses its newest commit; SIGKILL"
    target = "the table, the checkpoint, and the driver"
    of_traits = frozenset({Trait.RESUMES_FROM_CHECKPOINT, Trait.ICEBERG_TABLE})

    def damage(self, run: RunContext, parameters: Any, checkpoint: Path, batch: int) -> dict[str, Any]:
        import pyarrow as pa
        from pyiceberg.exceptions import CommitFailedException

        table = tables.opened(run)
        before = [snapshot.snapshot_id for snapshot in table.snapshots()]
        try:
            table.append(pa.table({"key": pa.array([], pa.binary()), "value": pa.array([], pa.binary())}))
            table.maintenance.expire_snapshots().by_ids(before).commit()
        except CommitFailedException as error:
            raise FaultError(f"the snapshots did not expire: {error}") from error
        return {"expired": before, **super().damage(run, parameters, checkpoint, batch)}

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        from streamproof.sinks.iceberg import metadata

        current = tables.metadata_file(run)
        known = {snapshot.id for snapshot in metadata.snapshots(current)} if current is not None else set[int]()
        gone = bool(known) and known.isdisjoint(target["expired"])
        detail = f"{len(target['expired'])} expired, {len(known)} there now"
        return [EvidenceCheck("the snapshots of before have expired", gone, detail), *super().evidence(run, parameters, target)]
