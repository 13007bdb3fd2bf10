"""``rewrite_table``: another writer sets every row of the Delta table to what it is, in one UPDATE, beside the job.

The model: a column that is filled in later, a deletion that the law asks for. Delta rewrites each file that holds such a row, and the log
says of it that data were removed and data were added, though all rows but a few are what they were. A job that reads the table as a stream
cannot tell the two apart. By default Spark's Delta source refuses such a version; with `skipChangeCommits` it passes over it; with
`ignoreChanges` it reads every row of the new files once more -> DUPLICATED.

Done by delta-rs, which is another writer than the job's.

Evidence: a version UPDATE that removed files and added others; after it the job committed a batch, or a start of it ended.
Checked against: Delta 4.4 on Spark 4.1, delta-rs 1.6.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.faults.ended import ended
from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.lakehouse import tables
from streamproof.sinks.delta import log
from streamproof.testbed.embedded import Testbed

UPDATE = "UPDATE"
FILES_S, GOES_ON_S = 60.0, 120.0
RACES = 5


class RewriteTable(tables.DeltaTableFault):
    name = "rewrite_table"
    summary = "Set every row of the Delta table to what it is, in an UPDATE of another writer: all its files are rewritten"

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        table = tables.folder(run, parameters)
        run.wait_for("a file in the table", lambda: bool(log.active(log.versions(table))), FILES_S)
        start, before = run.driver()["start"], log.versions(table)[-1].number
        return {"role": self.target, "table": str(table), "start": start, "before": before}

    def inject(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> None:
        import deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        for _ in range(RACES):
            table = deltalake.DeltaTable(target["table"])
            column = table.schema().fields[0].name
            try:
                table.update(updates={column: f"`{column}`"})
                return
            except CommitFailedError:
                continue  # the job committed first
            except DeltaError as error:
                raise FaultError(f"the table was not rewritten: {error}") from error
        raise FaultError(f"the table was not rewritten: {RACES} times another commit came first")

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        def ends() -> list[int]:
            return ended(run.folder, target["start"])

        done = [each for each in log.versions(Path(target["table"])) if each.number > target["before"] and each.operation == UPDATE]
        rewritten = bool(done) and bool(done[0].removed) and bool(done[0].added)
        detail = f"version {done[0].number}: {len(done[0].removed)} files became {len(done[0].added)}" if done else "no such version"
        before = run.progress.batches()
        met = run.eventually(lambda: run.progress.batches() > before or bool(ends()), GOES_ON_S)
        told = f"{run.progress.batches() - before} batches since, starts {ends() or 'none'} ended"
        return [
            EvidenceCheck("the table was rewritten", rewritten, detail),
            EvidenceCheck("the job met it: it committed a batch, or ended", met, told),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """There is nothing to undo: the rows are the same."""
        return []
