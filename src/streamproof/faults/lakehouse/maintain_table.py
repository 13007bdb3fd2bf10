"""``maintain_table``: the driver dies between the table's commit and Spark's, and before it is back the Iceberg table is compacted and its
older snapshots expire.

The model: maintenance that runs by a schedule, and meets a job that is down. Nothing is done to the checkpoint, and nothing goes wrong in
the maintenance: ``rewrite_data_files`` keeps every row, ``expire_snapshots`` keeps the newest snapshot. But that one is the compaction's,
and Iceberg's own sink looks for its query's id and epoch in the snapshots that there are, from the newest back. It finds none, takes the
batch that runs again for a new one, and writes it a second time -> DUPLICATED, without a word. MERGE is not harmed: it asks the rows.

The driver is stopped (SIGSTOP) while the catalog names the batch and ``commits/N`` is missing, and killed there; nobody starts it while the
maintenance lasts, which is done by Iceberg's procedure in a Spark of its own, and by pyiceberg.

Evidence: the step at which it was killed; a snapshot ``replace`` with fewer files; none of the snapshots of before is in the table; the
driver's processes are gone, the job was started again, and did that batch again.
Checked against: Iceberg 1.11 on Spark 4.1 (``SparkWrite.findLastCommittedEpochId``), pyiceberg 0.12.
"""

from __future__ import annotations

import random
from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.lakehouse import tables
from streamproof.faults.lakehouse.compact_table import FILES_S, LEAST_FILES, compacted
from streamproof.faults.process.hold import stopped_at
from streamproof.faults.process.kill_driver import EVIDENCE_S, KillDriver
from streamproof.jobs import down
from streamproof.jobs.failpoint import Site
from streamproof.jobs.profile import JobProfile, Role, Trait
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.anomaly import Anomaly

AFTER = ("after_snapshot",)
MAINTENANCE_S = 270.0


class MaintainTable(KillDriver):
    name = "maintain_table"
    summary = "SIGKILL the driver after the Iceberg table's commit; compact the table and expire its older snapshots before it is back"
    target = "the driver, and the table"
    parameters_model = Parameters
    of_traits = frozenset({Trait.RESUMES_FROM_CHECKPOINT, Trait.ICEBERG_TABLE})
    sites = frozenset[Site]()  # it has a step of its own

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        super().check(profile, parameters)
        if not any(point.name in AFTER for point in profile.failpoints):
            raise ValueError(f"{self.name}: a job with {profile.name!r} has no step after its table's commit: {', '.join(AFTER)}")

    def provokes(self, profile: JobProfile, parameters: dict[str, Any]) -> list[Anomaly]:
        asks_the_rows = Trait.KNOWS_THE_QUERY not in profile.traits and not profile.failpoint(AFTER[0]).provokes
        return [] if asks_the_rows else sorted({Anomaly.DUPLICATED} - profile.guarantee.forbidden)

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Not for chance: no promise of a sink covers it that knows its batches by the snapshots."""
        return None

    def batches(self, parameters: Any) -> int:
        return 4

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        run.wait_for(f"{LEAST_FILES} files in the table", lambda: len(tables.files(run)) >= LEAST_FILES, FILES_S)
        return {"role": self.target, "start": run.driver()["start"], "killed": run.recorded(Role.DRIVER), "down_s": MAINTENANCE_S}

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        from pyiceberg.exceptions import CommitFailedException

        from streamproof.faults.lakehouse.rewrite_data_files import rewrite_data_files

        held = stopped_at(run, AFTER[0])
        target |= {"batch": held.batch, "step": held.failpoint, "before": tables.newest(run)}
        super().inject(run, parameters, {**target, "delay_s": 0.0})
        rewrite_data_files(run, *tables.named(run, parameters))
        table = tables.opened(run)
        newest = table.current_snapshot()
        before = [snapshot.snapshot_id for snapshot in table.snapshots() if newest is None or snapshot.snapshot_id != newest.snapshot_id]
        try:
            table.maintenance.expire_snapshots().by_ids(before).commit()
        except CommitFailedException as error:
            raise FaultError(f"the snapshots did not expire: {error}") from error
        target["expired"] = before
        down.lift(run.folder)

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        from streamproof.sinks.iceberg import metadata

        batch, start = target["batch"], target["start"]

        def again() -> bool:
            return any(line["batch"] == batch and line["start"] > start for line in run.progress.lines())

        checks = super().evidence(run, parameters, target)
        replayed = run.eventually(again, EVIDENCE_S)
        current = tables.metadata_file(run)
        known = {snapshot.id for snapshot in metadata.snapshots(current)} if current is not None else set[int]()
        gone = bool(known) and known.isdisjoint(target["expired"])
        return [
            EvidenceCheck("it was killed after the table's commit", batch is not None, f"at {target['step']} of batch {batch}"),
            compacted(run, parameters, target),
            EvidenceCheck("the snapshots of before have expired", gone, f"{len(target['expired'])} expired, {len(known)} there now"),
            *checks,
            EvidenceCheck(f"batch {batch} was run again", replayed, f"by start {run.progress.last_start()}"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """There is nothing to undo in the table: the rows are the same. The supervisor starts the driver again."""
        down.lift(folder)
        return []
