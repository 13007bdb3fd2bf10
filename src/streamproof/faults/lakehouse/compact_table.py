"""``compact_table``: the Delta table's small files are rewritten as large ones while the job writes to it.

The model: OPTIMIZE, run by a schedule beside the job. It removes files and adds others that hold the same rows, in a version of its own;
the job commits versions at the same time. Both must win, one after the other. A job that reads the table as a stream must not take the
rows for new ones.

Done by delta-rs, which is another writer than the job's.

Evidence: a version OPTIMIZE that removed several files and added fewer, and a batch that the job committed afterwards.
Checked against: Delta 4.4 on Spark 4.1, delta-rs 1.6.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.lakehouse import tables
from streamproof.sinks.delta import log
from streamproof.testbed.embedded import Testbed

OPTIMIZE = "OPTIMIZE"
GOES_ON_S = 120.0
LEAST_FILES = 2
FILES_S = 60.0


class CompactTable(tables.DeltaTableFault):
    name = "compact_table"
    summary = "Rewrite the Delta table's small files as large ones, beside the job"

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        table = tables.folder(run, parameters)

        def files() -> int:
            return len(log.active(log.versions(table)))

        run.wait_for(f"{LEAST_FILES} files in the table", lambda: files() >= LEAST_FILES, FILES_S)
        return {"role": self.target, "table": str(table), "before": log.versions(table)[-1].number, "files": files()}

    def inject(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> None:
        import deltalake
        from deltalake.exceptions import DeltaError

        try:
            deltalake.DeltaTable(target["table"]).optimize.compact()
        except DeltaError as error:
            raise FaultError(f"the table was not compacted: {error}") from error

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        done = [each for each in log.versions(Path(target["table"])) if each.number > target["before"] and each.operation == OPTIMIZE]
        fewer = bool(done) and len(done[0].removed) > len(done[0].added) > 0
        detail = f"version {done[0].number}: {len(done[0].removed)} files became {len(done[0].added)}" if done else "no such version"
        return [EvidenceCheck("the table was compacted", fewer, detail), run.goes_on(GOES_ON_S)]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """There is nothing to undo: the rows are the same."""
        return []
