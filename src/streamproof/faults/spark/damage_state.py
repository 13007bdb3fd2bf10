"""``damage_state``: a file of the job's state store is damaged, and the driver killed, so that the next start must load the state anew.

The model: a disk that lost a write, a copy that was not whole, a bucket that was restored to yesterday. ``how`` says what is left of the
newest version of one store: nothing (``lose``), half of its file (``truncate``), or the version before it under the new name, with all that
belongs to it (``older``). A state that is not what the last batch left must be refused: a job that goes on with another computes other
results, without a word. ``older`` is whole, checksums and all: no store can know of it. The job goes on, and what it delivers shows it.

Done while the driver stands still (SIGSTOP) and nothing is planned behind the last commit. Healing puts the file back, unless the job has
gone on with what there was.

Evidence: the file is as described; a start of the job ended, its log names the file or the failed load, and no batch was committed
meanwhile, or (``older`` alone) the job committed batches with what there was; it committed one after that, and once the file was back.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import Field

from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext
from streamproof.faults.spark.must_be_refused import MustBeRefused
from streamproof.jobs.profile import Trait

STATE = "state"
FORMS = ("delta", "changelog", "snapshot", "zip")
"""How a version's file ends: changes and whole states of the default store, changes and whole states of RocksDB."""


class How(StrEnum):
    LOSE = "lose"
    TRUNCATE = "truncate"
    OLDER = "older"


class DamageStateParameters(Parameters):
    how: How = Field(How.LOSE, description="What is left of the newest version: nothing, half of its file, or the version before it")


class DamageState(MustBeRefused):
    name = "damage_state"
    summary = "Damage the newest file of a state store, and SIGKILL the driver: the state must be refused"
    target = "the state store, and the driver"
    parameters_model = DamageStateParameters
    of_traits = MustBeRefused.of_traits | {Trait.STATE_STORE}

    def root(self, run: RunContext) -> Path:
        return run.job.checkpoint() / STATE

    def ready(self, run: RunContext) -> bool:
        return bool(_stores(self.root(run)))

    def damage(self, run: RunContext, parameters: DamageStateParameters, checkpoint: Path, batch: int) -> dict[str, Any]:
        store = run.rng.choice(_stores(self.root(run)))
        newest = max(_versions(store))
        file = _file(store, newest)
        of_it = _of(store, newest)
        self.keep(run, of_it)
        if parameters.how is How.TRUNCATE:
            with file.open("r+b") as opened:
                opened.truncate(file.stat().st_size // 2)
        else:
            for each in of_it:
                each.unlink()
        if parameters.how is How.OLDER:
            for each in _of(store, newest - 1):
                shutil.copy2(each, each.with_name(each.name.replace(str(newest - 1), str(newest), 1)))
        return {
            "file": str(file),
            "version": newest,
            "how": parameters.how,
            "left": file.stat().st_size if file.exists() else None,
            "batch": batch,
        }

    def said(self, target: dict[str, Any]) -> Collection[str]:
        return (Path(target["file"]).name, "CANNOT_LOAD_STATE_STORE")

    def damaged(self, target: dict[str, Any]) -> EvidenceCheck:
        file, left = Path(target["file"]), target["left"]
        as_left = not file.exists() if left is None else file.exists() and file.stat().st_size == left
        words = "gone" if left is None else f"{left} B, {target['how']}"
        return EvidenceCheck("the state's file is damaged", as_left, f"{file.relative_to(target['root'])}: {words}")

    def may_go_on(self, parameters: Parameters) -> bool:
        return isinstance(parameters, DamageStateParameters) and parameters.how is How.OLDER

    def past(self, target: dict[str, Any]) -> bool:
        return "file" in target and max(_versions(Path(target["file"]).parent), default=0) > target["version"]

    def committed(self, run: RunContext, target: dict[str, Any]) -> list[str]:
        later = (line for line in run.progress.lines() if line["start"] > target["start"] and line["batch"] > target["batch"])
        return [f"batch {batch}" for batch in sorted({line["batch"] for line in later})]


def _stores(root: Path) -> list[Path]:
    """The folders of the stores that have two versions at least, one for each operator, part and name."""
    return sorted(folder for folder in root.rglob("*") if folder.is_dir() and len(_versions(folder)) > 1)


def _versions(store: Path) -> set[int]:
    found = (path.name.split(".") for path in store.iterdir())
    return {int(name[0]) for name in found if len(name) == 2 and name[0].isdigit() and name[1] in FORMS}


def _of(store: Path, version: int) -> list[Path]:
    """All files of a version: its own, and the checksums beside it."""
    return sorted(path for path in store.iterdir() if path.is_file() and path.name.lstrip(".").split(".")[0] == str(version))


def _file(store: Path, version: int) -> Path:
    """The file of a version that a start reads."""
    return next(file for form in FORMS if (file := store / f"{version}.{form}").exists())
