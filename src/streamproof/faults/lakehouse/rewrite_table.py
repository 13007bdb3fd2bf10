"""``rewrite_table``: another writer puts every row of the table in anew, as it is, beside the job.

The model: a column that is filled in later, a deletion that the law asks for, a load that is done over. The format rewrites each file that
holds such a row, and says of it that data were removed and data were added, though all rows but a few are what they were. A job that reads
the table as a stream cannot tell the two apart. Spark's sources refuse such a version by default; with an option they pass over it; with
another one they read every row of the new files once more -> DUPLICATED.

Done by delta-rs, in an UPDATE that sets a column to itself, or by pyiceberg, which takes all rows out in one snapshot and puts them in
again in the next, in one commit.

Evidence: the version, or snapshot, with files that were there before removed, and others added; after it the job committed a batch, or a
start of it ended.
Checked against: Delta 4.4 and Iceberg 1.11 on Spark 4.1, delta-rs 1.6, pyiceberg 0.12.
"""

from __future__ import annotations

from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.faults.ended import ended
from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.lakehouse import tables
from streamproof.testbed.embedded import Testbed

FILES_S, GOES_ON_S = 60.0, 120.0
RACES = 20


class RewriteTable(tables.TableFault):
    name = "rewrite_table"
    summary = "Put every row of the table of Delta or Iceberg in anew, as it is, as another writer: all its files are rewritten"

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        run.wait_for("a file in the table", lambda: bool(tables.files(run, parameters)), FILES_S)
        return {"role": self.target, "start": run.driver()["start"]}

    def inject(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> None:
        rewrite = _rewrite_iceberg if tables.of_iceberg(run) else _rewrite_delta
        for _ in range(RACES):
            before = tables.files(run, parameters)
            if rewrite(run, parameters):
                left = before & tables.files(run, parameters)
                target |= {"rewritten": len(before - left), "left": len(left), "version": tables.newest(run, parameters)}
                return
        raise FaultError(f"the table was not rewritten: {RACES} times another commit came first")

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        def ends() -> list[int]:
            return ended(run.folder, target["start"])

        rewritten = target["rewritten"] > 0 and target["left"] == 0
        before = run.progress.batches()
        met = run.eventually(lambda: run.progress.batches() > before or bool(ends()), GOES_ON_S)
        told = f"{run.progress.batches() - before} batches since, starts {ends() or 'none'} ended"
        detail = f"{target['rewritten']} files were replaced, {target['left']} were not, up to version {target['version']}"
        return [
            EvidenceCheck("the table was rewritten", rewritten, detail),
            EvidenceCheck("the job met it: it committed a batch, or ended", met, told),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """There is nothing to undo: the rows are the same."""
        return []


def _rewrite_delta(run: RunContext, parameters: Parameters) -> bool:
    """Whether the commit was the first one after what it had read."""
    import deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError

    table = deltalake.DeltaTable(str(tables.folder(run, parameters)))
    column = table.schema().fields[0].name
    try:
        table.update(updates={column: f"`{column}`"})
    except CommitFailedError:
        return False
    except DeltaError as error:
        raise FaultError(f"the table was not rewritten: {error}") from error
    return True


def _rewrite_iceberg(run: RunContext, parameters: Parameters) -> bool:
    from pyiceberg.exceptions import CommitFailedException, ValidationException

    table = tables.opened(run, parameters)
    try:
        table.overwrite(table.scan().to_arrow())
    except (CommitFailedException, ValidationException):  # the job's files would have been taken out with the others
        return False
    return True
