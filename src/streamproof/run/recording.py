"""The history of this state folder's runs: recording a run, taking in runs that exist, and removing old ones with their folders."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path

import sqlalchemy as sa

from streamproof import settings
from streamproof.errors import BadInput
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.history import record as history
from streamproof.history.record import HistoryError, Run
from streamproof.history.store import Store
from streamproof.run import healing, lock


@dataclass(frozen=True)
class Removal:
    """What became of an old run: ``row`` and ``folder`` say whether each goes, ``kept`` why something of it stays."""

    run: Run
    row: bool
    folder: bool
    kept: str | None = None


def opened(url: str | None = None) -> Store:
    """The store at ``url``, of this state folder when absent. Raises BadInput when that is no URL of a database."""
    url = url or settings.history()
    try:
        return Store(sa.make_url(url))
    except sa.exc.ArgumentError:
        raise BadInput(
            f"{url} is not the URL of a database: expected one like sqlite:////folder/history.sqlite or postgresql://user@host/name; "
            "see STREAMPROOF_HISTORY"
        ) from None


def record(folder: RunFolder) -> None:
    """Remember a judged run as it is now. Raises HistoryError, or EvidenceError when its folder is damaged."""
    row = history.read(folder)
    with opened() as store:
        store.record(row)


def find_run(store: Store, name: str) -> Run:
    """A run by its folder or its name: as its folder has it, and where that is gone as the history has it. Raises BadInput for none."""
    for path in (Path(name), settings.runs() / name):
        if (path / "experiment.yaml").is_file():
            return history.read(RunFolder(path))
    run = store.run(name)
    if run is None:
        raise BadInput(f"{name}: no such run, neither a folder in {settings.runs()} nor in the history {store.name}")
    return run


def run_folders(paths: Sequence[Path]) -> list[RunFolder]:
    """The runs that are named, by their folder or one that holds them; all of the state folder when nothing is.

    Raises EvidenceError when a folder is neither.
    """
    folders: list[RunFolder] = []
    for path in paths or [settings.runs()]:
        inside = sorted(file.parent for file in path.glob("*/experiment.yaml"))
        if paths and not inside:
            folders.append(RunFolder.open(path))
        folders += map(RunFolder, inside)
    return folders


def take_in(store: Store, folders: Iterable[RunFolder]) -> tuple[list[Run], list[str]]:
    """Record runs that exist. Returns them, and a sentence for each that cannot be: it has no verdict (yet), or a damaged one."""
    runs, refused = [], []
    for folder in folders:
        try:
            runs.append(history.read(folder))
        except EvidenceError as error:
            refused.append(str(error))
    store.record(*runs)
    return runs, refused


def old(runs: Sequence[Run], older_than: timedelta | None, keep: int | None, now: datetime | None = None) -> list[Run]:
    """Those of ``runs`` that began longer ago than ``older_than``, and are not among the newest ``keep`` of their cell."""
    before = (now or datetime.now(UTC)) - older_than if older_than is not None else None
    ordered = sorted(runs, key=lambda run: (run.cell, run.began_at), reverse=True)
    beyond = [run for _, of_cell in groupby(ordered, key=lambda run: run.cell) for run in list(of_cell)[keep or 0 :]]
    return sorted((run for run in beyond if before is None or run.began_at < before), key=lambda run: run.began_at)


def remove(store: Store, runs: Iterable[Run], *, dry: bool = False) -> Iterator[Removal]:
    """Remove runs one by one, with their folders where these are ours to remove. ``dry`` only says what would be.

    A folder is first put aside as a whole: of one whose removal was stopped half-way the next call removes the rest. Raises HistoryError
    when a folder cannot be removed.
    """
    aside = settings.home() / "pruned"
    left = {folder.path for folder in healing.unrestored()}
    for run in runs:
        removal = _removal(run, left)
        if not dry:
            try:
                if removal.folder:
                    aside.mkdir(exist_ok=True)
                    Path(run.folder).rename(aside / run.run)
                if aside.exists():
                    shutil.rmtree(aside)
            except OSError as error:
                raise HistoryError(f"{run.folder} cannot be removed: {error}") from error
        if not dry and removal.row:
            store.forget(run)
        yield removal


def _removal(run: Run, left: set[Path]) -> Removal:
    path = Path(run.folder)
    if not path.exists():
        return Removal(run, row=True, folder=False)
    if path.is_symlink() or path.resolve().parent != settings.runs() or not (path / "experiment.yaml").is_file():
        return Removal(run, row=True, folder=False, kept=f"{path} is not a run's folder in {settings.runs()}: it is left")
    try:
        another = history.began(RunFolder(path)) != run.began_at
    except EvidenceError:
        another = True
    if another:
        return Removal(run, row=True, folder=False, kept=f"{path} holds another run by now: it is left")
    holder = lock.holder()
    if holder is not None and Path(holder.folder) == path.resolve():
        return Removal(run, row=False, folder=False, kept="it holds the testbed")
    if path.resolve() in left:
        return Removal(run, row=False, folder=False, kept="it did not give the testbed back: `streamproof heal`")
    return Removal(run, row=True, folder=True)
