"""What faults share after which the job must refuse to go on: a file is damaged that its next start needs, and put back once it has."""

from __future__ import annotations

import random
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.faults.ended import ended_saying
from streamproof.faults.fault import STALL, EvidenceCheck, Parameters, RunContext
from streamproof.faults.process.hold import wake
from streamproof.faults.process.kill_driver import EVIDENCE_S
from streamproof.faults.spark.lose_last_commit import LoseLastCommit
from streamproof.jobs.profile import JobProfile
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.anomaly import Anomaly


class MustBeRefused(LoseLastCommit):
    """Its target holds ``root``, the folder in which the file is, and ``kept``, where it lies until it is put back."""

    occupies = LoseLastCommit.occupies | {STALL}

    def provokes(self, profile: JobProfile, parameters: dict[str, Any]) -> list[Anomaly]:
        return []

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Not for chance: a schedule may have others that read what is damaged."""
        return None

    def batches(self, parameters: Any) -> int:
        return 4

    def root(self, run: RunContext) -> Path:
        """The folder in which the file is."""
        raise NotImplementedError

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        return {**super().aim(run, parameters), "root": str(self.root(run)), "kept": str(self._kept(run))}

    def keep(self, run: RunContext, files: Iterable[Path]) -> None:
        """Copies of the files, which healing puts in their place."""
        for file in files:
            kept = self._kept(run) / file.relative_to(self.root(run))
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, kept)

    def _kept(self, run: RunContext) -> Path:
        return run.folder.path / f"kept-by-{self.name}"

    def said(self, target: dict[str, Any]) -> Collection[str]:
        """One of these is in the log of a start that refuses."""
        raise NotImplementedError

    def damaged(self, target: dict[str, Any]) -> EvidenceCheck:
        """That the file is as it was left, before any start of the job that it is there for."""
        raise NotImplementedError

    def committed(self, run: RunContext, target: dict[str, Any]) -> list[str]:
        """What was committed since the damage was done."""
        raise NotImplementedError

    def past(self, target: dict[str, Any]) -> bool:
        """Whether it would do harm to put the file back, for something was built on what was there instead."""
        return False

    def may_go_on(self, parameters: Parameters) -> bool:
        """Whether no check of the job could know of the damage, so that it is judged by what it delivers alone."""
        return False

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        def refused() -> list[int]:
            return ended_saying(run.folder, target["start"] + 1, self.said(target))

        damaged = self.damaged(target)
        run.eventually(lambda: bool(refused() or self.committed(run, target)), EVIDENCE_S)
        starts, committed = refused(), self.committed(run, target)
        run.over.set()
        newer = ", ".join(committed) or "nothing newer"
        if starts or not self.may_go_on(parameters):
            met = [
                EvidenceCheck("a start of the job ended and its log says why", bool(starts), f"starts {starts or 'none'}"),
                EvidenceCheck("nothing was committed meanwhile", not committed, newer),
            ]
        else:
            met = [EvidenceCheck("the job went on with it", bool(committed), newer)]
        healed = self.heal(run.testbed, run.folder, target)
        before = run.progress.batches()
        on = run.eventually(lambda: run.progress.batches() > before, EVIDENCE_S)
        return [
            damaged,
            *met,
            *healed,
            EvidenceCheck("the job committed a batch afterwards", on, f"{run.progress.batches() - before} so far"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """Put back what was kept."""
        wake(target["driver"])
        root, kept = Path(target["root"]), Path(target["kept"])
        if not root.is_dir():
            return [EvidenceCheck("the file is back", True, "its folder is gone")]
        if self.past(target):
            return [EvidenceCheck("the file is back", True, "the job has gone on with what there was: it is left so")]
        names = sorted(path.relative_to(kept) for path in kept.rglob("*") if path.is_file())
        for name in names:
            if not _same(root / name, kept / name):
                put(kept / name, root / name)
        lacking = [str(name) for name in names if not _same(root / name, kept / name)]
        return [EvidenceCheck("the file is back", not lacking, ", ".join(lacking) or "all of it")]


def put(source: Path, file: Path) -> None:
    """A copy of ``source`` in the place of the file, which is never there in part."""
    beside = file.with_name(f"{file.name}.being-put-back")
    shutil.copy2(source, beside)
    beside.replace(file)


def _same(one: Path, other: Path) -> bool:
    return one.exists() and one.read_bytes() == other.read_bytes()
