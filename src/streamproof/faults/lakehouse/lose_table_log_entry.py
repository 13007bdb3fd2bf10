"""``lose_table_log_entry``: a file of the table's metadata is gone, and the driver is killed, so that the job must read the table anew.

The model: a rule of expiry on a bucket, a copy that was not whole, somebody who made room. Of a Delta table it is the entry of
``_delta_log`` before the newest one, which no checkpoint of the log replaces; of an Iceberg table the manifest list of the newest snapshot.
A table that lacks a part of its metadata must be refused and not be read short: a job that goes on with what is left loses what the entry
named, without a word.

Done while the driver stands still (SIGSTOP) and nothing is planned behind the last commit. Healing puts the file back.

Evidence: the file is gone; a start of the job ended, and its log says what is missing; no version was committed while the file was away;
the job committed a batch once it was back.
Checked against: Delta 4.4 on Spark 4.1 (``versions are not contiguous``), Iceberg 1.11 (``NotFoundException``).
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from streamproof.faults.fault import EvidenceCheck, RunContext
from streamproof.faults.lakehouse import tables
from streamproof.faults.spark.must_be_refused import MustBeRefused
from streamproof.jobs.profile import JobProfile, Trait

DELTA_LOG, CHECKPOINT = "_delta_log", ".checkpoint"


class LoseTableLogEntry(MustBeRefused):
    name = "lose_table_log_entry"
    summary = "Take a file of the table's metadata away, of Delta or Iceberg, and SIGKILL the driver: the table must be refused"
    target = "the table's metadata, and the driver"

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        super().check(profile, parameters)
        tables.check(self.name, profile)

    def root(self, run: RunContext) -> Path:
        return run.job.files

    def ready(self, run: RunContext) -> bool:
        return _entry(run) is not None

    def damage(self, run: RunContext, parameters: Any, checkpoint: Path, batch: int) -> dict[str, Any]:
        entry = _entry(run)
        assert entry is not None, "ready"
        newest = tables.newest(run)
        files = [file for file in (entry, entry.with_name(f".{entry.name}.crc"), entry.with_suffix(".crc")) if file.exists()]
        self.keep(run, files)
        for file in files:
            file.unlink()
        return {"entry": str(entry), "newest": newest}

    def said(self, target: dict[str, Any]) -> Collection[str]:
        return (Path(target["entry"]).name, "not contiguous", "NotContiguous", "VERSIONS_NOT_CONTIGUOUS")

    def damaged(self, target: dict[str, Any]) -> EvidenceCheck:
        entry = Path(target["entry"])
        return EvidenceCheck("the file is gone", not entry.exists(), entry.name)

    def committed(self, run: RunContext, target: dict[str, Any]) -> list[str]:
        """What is newer in the table's metadata than what was there when the file was taken away."""
        if Trait.DELTA_TABLE in run.profile.traits:
            entries = (run.job.files / DELTA_LOG).glob("*.json")
            return sorted(path.name for path in entries if path.stem.isdigit() and int(path.stem) > target["newest"])
        current = tables.metadata_file(run)
        return [] if current is None or tables.newest(run) == target["newest"] else [current.name]


def _entry(run: RunContext) -> Path | None:
    """The file to take away; None as long as there is none that a reader must have."""
    if Trait.DELTA_TABLE in run.profile.traits:
        folder = run.job.files / DELTA_LOG
        newest = tables.newest(run)
        replaced = [int(path.name.partition(".")[0]) for path in folder.glob(f"*{CHECKPOINT}*.parquet")]
        if newest is None or newest - 1 <= max(replaced, default=0):
            return None
        return folder / f"{newest - 1:020d}.json"
    from streamproof.sinks.iceberg import metadata

    current = tables.metadata_file(run)
    snapshots = metadata.snapshots(current) if current is not None else []
    return metadata.path_of(snapshots[-1].manifests) if snapshots else None
