"""``compact_table``: the table's small files are rewritten as large ones while the job writes to it.

The model: OPTIMIZE of Delta, ``rewrite_data_files`` of Iceberg, run by a schedule beside the job. It removes files and adds others that
hold the same rows, in a version of its own; the job commits versions at the same time. Both must win, one after the other. A job that reads
the table as a stream must not take the rows for new ones.

Done by delta-rs, or by Iceberg's procedure in a Spark of its own: another writer than the job's.

Evidence: a version OPTIMIZE, or a snapshot ``replace``, that removed several files and added fewer, and a batch that the job committed
afterwards.
Checked against: Delta 4.4 and Iceberg 1.11 on Spark 4.1, delta-rs 1.6.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.lakehouse import tables
from streamproof.jobs.profile import Trait
from streamproof.sinks.delta import log
from streamproof.testbed.embedded import Testbed

OPTIMIZE = "OPTIMIZE"
GOES_ON_S = 120.0
LEAST_FILES = 2
FILES_S = 60.0


class CompactTable(tables.TableFault):
    name = "compact_table"
    summary = "Rewrite the small files of the table of Delta or Iceberg as large ones, beside the job"

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        run.wait_for(f"{LEAST_FILES} files in the table", lambda: len(tables.files(run, parameters)) >= LEAST_FILES, FILES_S)
        target = {"role": self.target, "before": tables.newest(run, parameters), "files": len(tables.files(run, parameters))}
        if not tables.of_iceberg(run):
            target["table"] = str(tables.folder(run, parameters))
        return target

    def inject(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> None:
        if tables.of_iceberg(run):
            from streamproof.faults.lakehouse.rewrite_data_files import rewrite_data_files

            rewrite_data_files(run, *tables.named(run, parameters))
            return
        import deltalake
        from deltalake.exceptions import DeltaError

        try:
            deltalake.DeltaTable(target["table"]).optimize.compact()
        except DeltaError as error:
            raise FaultError(f"the table was not compacted: {error}") from error

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        return [compacted(run, parameters, target), run.goes_on(GOES_ON_S)]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """There is nothing to undo: the rows are the same."""
        return []


class CompactDeltaTable(CompactTable):
    """What is done to a Delta table only, and compacts it first."""

    formats = frozenset({Trait.DELTA_TABLE})


def compacted(run: RunContext, parameters: Parameters, target: dict[str, Any]) -> EvidenceCheck:
    """That since the version ``before`` of a target files became fewer files."""
    what = "the table was compacted"
    if tables.of_iceberg(run):
        from streamproof.sinks.iceberg import metadata

        current = tables.metadata_file(run, parameters)
        replaced = [each for each in metadata.snapshots(current) if each.number > target["before"]] if current is not None else []
        found = next((each for each in replaced if each.operation == metadata.COMPACTION), None)
        counts = (0, 0) if found is None else metadata.replaced(found)
        return _fewer(what, f"snapshot {found.number}" if found is not None else None, *counts)
    done = [each for each in log.versions(Path(target["table"])) if each.number > target["before"] and each.operation == OPTIMIZE]
    return _fewer(what, f"version {done[0].number}", len(done[0].removed), len(done[0].added)) if done else _fewer(what, None, 0, 0)


def _fewer(what: str, where: str | None, removed: int, added: int) -> EvidenceCheck:
    detail = f"{where}: {removed} files became {added}" if where is not None else "no such version"
    return EvidenceCheck(what, removed > added > 0, detail)
