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

import random
import shutil
from pathlib import Path
from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.faults.ended import ended_saying
from streamproof.faults.fault import STALL, EvidenceCheck, Parameters, RunContext
from streamproof.faults.lakehouse import tables
from streamproof.faults.process.hold import wake
from streamproof.faults.process.kill_driver import EVIDENCE_S
from streamproof.faults.spark.lose_last_commit import LoseLastCommit
from streamproof.jobs.profile import JobProfile, Trait
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.anomaly import Anomaly

DELTA_LOG, CHECKPOINT = "_delta_log", ".checkpoint"


class LoseTableLogEntry(LoseLastCommit):
    name = "lose_table_log_entry"
    summary = "Take a file of the table's metadata away, of Delta or Iceberg, and SIGKILL the driver: the table must be refused"
    target = "the table's metadata, and the driver"
    occupies = LoseLastCommit.occupies | {STALL}

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        super().check(profile, parameters)
        tables.check(self.name, profile)

    def provokes(self, profile: JobProfile, parameters: dict[str, Any]) -> list[Anomaly]:
        return []

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Not for chance: a schedule may have others that read the table."""
        return None

    def batches(self, parameters: Any) -> int:
        return 4

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        return {**super().aim(run, parameters), "table": str(run.job.files), "away": str(_away(run))}

    def ready(self, run: RunContext) -> bool:
        return _entry(run) is not None

    def damage(self, run: RunContext, parameters: Any, checkpoint: Path, batch: int) -> dict[str, Any]:
        table, away, entry = run.job.files, _away(run), _entry(run)
        assert entry is not None, "ready"
        newest = tables.newest(run)
        for file in (entry, entry.with_name(f".{entry.name}.crc"), entry.with_suffix(".crc")):
            if file.exists():
                aside = away / file.relative_to(table)
                aside.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(file, aside)
        return {"entry": str(entry), "newest": newest}

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        entry = Path(target["entry"])
        gone = not entry.exists()
        run.eventually(lambda: bool(_refused(run, target)), EVIDENCE_S)
        refused = _refused(run, target)
        run.over.set()
        committed = sorted(file.name for file in _newer(run, target))
        healed = self.heal(run.testbed, run.folder, target)
        before = run.progress.batches()
        on = run.eventually(lambda: run.progress.batches() > before, EVIDENCE_S)
        return [
            EvidenceCheck("the file is gone", gone, entry.name),
            EvidenceCheck("a start of the job ended and its log says what is missing", bool(refused), f"starts {refused or 'none'}"),
            EvidenceCheck("nothing was committed while it was away", not committed, ", ".join(committed) or "no newer version"),
            *healed,
            EvidenceCheck("the job committed a batch once it was back", on, f"{run.progress.batches() - before} so far"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """Put back what was taken away."""
        wake(target["driver"])
        table, away = Path(target["table"]), Path(target["away"])
        for aside in sorted(path for path in away.rglob("*") if path.is_file()):
            if table.is_dir() and not (back := table / aside.relative_to(away)).exists():
                shutil.copy2(aside, back)
        lacking = [
            str(path.relative_to(away)) for path in away.rglob("*") if path.is_file() and not (table / path.relative_to(away)).exists()
        ]
        there = not table.is_dir() or not lacking
        return [EvidenceCheck("the file is back", there, ", ".join(lacking) or "all of it")]


def _away(run: RunContext) -> Path:
    return run.folder.path / "metadata-taken-away"


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


def _newer(run: RunContext, target: dict[str, Any]) -> list[Path]:
    """What is newer in the table's metadata than what was there when the file was taken away."""
    if Trait.DELTA_TABLE in run.profile.traits:
        entries = (run.job.files / DELTA_LOG).glob("*.json")
        return [path for path in entries if path.stem.isdigit() and int(path.stem) > target["newest"]]
    current = tables.metadata_file(run)
    if current is None or tables.newest(run) == target["newest"]:
        return []
    return [current]


def _refused(run: RunContext, target: dict[str, Any]) -> list[int]:
    """The starts since then that ended, and whose log names the file, or says that a version is missing."""
    said = (Path(target["entry"]).name, "not contiguous", "NotContiguous", "VERSIONS_NOT_CONTIGUOUS")
    return ended_saying(run.folder, target["start"] + 1, said)
