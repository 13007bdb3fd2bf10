"""A night: the cells of a matrix, run one after the other, and what they changed beside the nights before.

A night is a folder, as a run is. ``plan.json`` holds the matrix as it was when the night began and when its time is over; ``cells/N.json``
names the run of cell N and is written before that run begins, or says why there is none; ``summary.json``, ``junit.xml`` and
``history.html`` come last and may be written again.

How a cell stands is what :mod:`streamproof.history.changes` finds in its runs with the same seed, tonight's being the newest, or one of

    not run      the night's time was over before its turn, or its turn never came
    stopped      its run is ABORTED
    unfinished   it began, and has no verdict, or one that its task did not live to tell

A night is *red* when a cell is not as expected: its outcome is not PASSED (a negative control that was caught PASSED), or there is none.
A cell that was not run is not as expected: nobody looked. Slow, flaky and fixed cells that PASSED are told, and do not make it red.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from streamproof import settings
from streamproof.evidence.folder import EvidenceError, RunFolder, utc_now, write_atomically
from streamproof.evidence.journal import Restored
from streamproof.experiment import matrix
from streamproof.experiment.matrix import Matrix, MatrixCell
from streamproof.history import junit, page, record
from streamproof.history.changes import Change, Kind, change
from streamproof.history.record import Run
from streamproof.history.store import Store, Wanted
from streamproof.run import recording as remembered
from streamproof.run import stages
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.verdict import Verdict

NOT_RUN, STOPPED, UNFINISHED = "not run", "stopped", "unfinished"
QUIET = (Kind.NEW, Kind.STABLE)
ORDER = (Kind.NEWLY_BROKEN, UNFINISHED, Kind.NOT_SHOWN, STOPPED, Kind.FLAKY, Kind.STILL_BROKEN, NOT_RUN, Kind.SLOWER, Kind.FIXED, *QUIET)


@dataclass(frozen=True)
class Told:
    """How one cell stands after the night. ``run`` and ``outcome`` are None where there was no run, or no verdict."""

    number: int
    strategy: str
    fault: str
    seed: int
    cell: str
    run: str | None
    outcome: str | None
    as_expected: bool
    state: str
    reason: str

    @property
    def line(self) -> str:
        return f"{self.state}: {self.cell}, seed {self.seed}: {self.reason}"


@dataclass(frozen=True)
class Summary:
    """A night in one object, the worst cell first."""

    night: str
    folder: str
    began_at: str
    ended_at: str
    cells: tuple[Told, ...]

    @property
    def red(self) -> bool:
        return not all(cell.as_expected for cell in self.cells)

    @property
    def news(self) -> tuple[Told, ...]:
        """What somebody wants to be told of."""
        return tuple(cell for cell in self.cells if not cell.as_expected or cell.state not in QUIET)

    @property
    def headline(self) -> str:
        good = sum(cell.as_expected for cell in self.cells)
        counts = Counter(cell.state for cell in self.cells)
        return f"{good} of {len(self.cells)} cells as expected: {', '.join(f'{counts[state]} {state}' for state in ORDER if counts[state])}"

    @property
    def text(self) -> str:
        return "\n".join([self.headline, *(cell.line for cell in self.news)])

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "red": self.red, "headline": self.headline}


@dataclass(frozen=True)
class Night:
    """One night, by its folder."""

    path: Path

    @classmethod
    def named(cls, name: str) -> Self:
        return cls(settings.home() / "nights" / name)

    @property
    def name(self) -> str:
        return self.path.name

    # --- its cells ------------------------------------------------------------------------------------------------------------------

    def plan(self, file: Path) -> list[MatrixCell]:
        """Begin the night with the matrix in ``file``. Raises BadInput when it cannot be run, before anything is."""
        planned = matrix.load(file)
        content = {
            "file": str(file),
            "began_at": utc_now(),
            "over_at": time.time() + planned.quota.night_s,
            "matrix": planned.model_dump(mode="json"),
        }
        write_atomically(self.path / "plan.json", json.dumps(content, indent=1))
        for leftover in [*(self.path / "cells").glob("*.json"), self.path / "summary.json"]:
            leftover.unlink(missing_ok=True)
        return planned.cells

    def cells(self) -> list[MatrixCell]:
        return Matrix.model_validate(self._plan()["matrix"]).cells

    def cell(self, number: int) -> MatrixCell:
        return self.cells()[number - 1]

    def over(self) -> bool:
        """Whether its time is used up."""
        return time.time() > float(self._plan()["over_at"])

    def run(self, cell: MatrixCell, attempt: int) -> str:
        """The name of a cell's run. Each attempt is a run of its own."""
        return f"{self.name}-{cell.name}" if attempt == 1 else f"{self.name}-{cell.name}-try{attempt}"

    def begin(self, cell: MatrixCell, run: str) -> None:
        """The cell's run is about to begin."""
        self._tell(cell, run=run)

    def end(self, cell: MatrixCell, run: str) -> None:
        """The cell's run has come to its end, and so has whoever carried it."""
        self._tell(cell, run=run, ended=utc_now())

    def leave(self, cell: MatrixCell, reason: str) -> None:
        """The cell is not run."""
        self._tell(cell, reason=reason)

    def verdict(self, number: int) -> Verdict | None:
        """The verdict on a cell; None when there is none, or it was stopped, which says nothing of the job."""
        run = self._told(self.cell(number)).get("run")
        folder = RunFolder(settings.runs() / run) if run is not None else None
        if folder is None or not folder.verdict.exists():
            return None
        verdict = Verdict.read(folder)
        return None if verdict.outcome is RunOutcome.ABORTED else verdict

    def _tell(self, cell: MatrixCell, **entry: str) -> None:
        (self.path / "summary.json").unlink(missing_ok=True)  # it is not what the night ends with any more
        write_atomically(self.path / "cells" / f"{cell.number}.json", json.dumps(entry))

    def _told(self, cell: MatrixCell) -> dict[str, str]:
        try:
            return dict(json.loads((self.path / "cells" / f"{cell.number}.json").read_text()))
        except FileNotFoundError:
            return {"reason": "its turn did not come"}

    def _plan(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.path / "plan.json").read_text()))
        except FileNotFoundError as error:
            raise EvidenceError(f"{self.path} is not a night: it has no plan.json") from error

    # --- its end --------------------------------------------------------------------------------------------------------------------

    def summarise(self) -> Summary:
        """Compare with the nights before; write ``summary.json``, ``junit.xml`` and ``history.html``.

        A cell whose process was killed has nobody else who ends its run: it is restored here. Raises HistoryError when the history cannot
        be read.
        """
        (self.path / "summary.json").unlink(missing_ok=True)
        entries = [(cell, self._told(cell)) for cell in self.cells()]
        for _, entry in entries:
            _end(entry.get("run"))
        with remembered.opened() as store:
            results = [_stands(store, cell, entry) for cell, entry in entries]
            runs = store.runs()
        runs_of_night = [run for _, run in results if run is not None]
        cells = tuple(sorted((cell for cell, _ in results), key=lambda cell: (ORDER.index(cell.state), cell.number)))
        summary = Summary(self.name, str(self.path), self._plan()["began_at"], utc_now(), cells)
        left = [
            (cell.strategy, f"{cell.fault}, seed {cell.seed}", cell.reason) for cell in cells if cell.run is None or cell.outcome is None
        ]
        write_atomically(self.path / "junit.xml", junit.junit(runs_of_night, left))
        of_same_cells = [run for run in runs if run.cell in {run.cell for run in runs_of_night}]
        page.write(of_same_cells, self.path / "history.html", settings.cache())
        write_atomically(self.path / "summary.json", json.dumps(summary.to_dict(), indent=1))
        return summary

    def summary(self) -> Summary | None:
        """What :meth:`summarise` wrote; None when it did not come to its end."""
        try:
            stored = json.loads((self.path / "summary.json").read_text())
        except FileNotFoundError:
            return None
        names = ("night", "folder", "began_at", "ended_at")
        return Summary(**{name: stored[name] for name in names}, cells=tuple(Told(**fields) for fields in stored["cells"]))


def _end(name: str | None) -> None:
    """See that a run has ended: abort one that nobody carries any more. One that is restored already is left as it is."""
    if name is None or not (folder := RunFolder(settings.runs() / name)).experiment.is_file():
        return
    if folder.journal.last(Restored) is None or not folder.verdict.exists():
        stages.abort(folder, "its task ended before the run did")


def _stands(store: Store, cell: MatrixCell, entry: dict[str, str]) -> tuple[Told, Run | None]:
    experiment, name = cell.experiment, entry.get("run")
    unfinished = Told(
        number=cell.number,
        strategy=experiment.label,
        fault=cell.fault,
        seed=experiment.seed,
        cell=f"{experiment.label} ({experiment.promised}) x {cell.fault}",
        run=name,
        outcome=None,
        as_expected=False,
        state=NOT_RUN if name is None else UNFINISHED,
        reason=entry.get("reason", ""),
    )
    if name is None:
        return unfinished, None
    try:
        run = record.read(RunFolder(settings.runs() / name))
    except EvidenceError as error:
        return replace(unfinished, reason=str(error)), None
    change_seen = _change(store, run)
    state, reason = (
        (STOPPED, run.reason) if run.outcome is RunOutcome.ABORTED or change_seen is None else (str(change_seen.kind), change_seen.reason)
    )
    expected = run.outcome is RunOutcome.PASSED and "ended" in entry
    if run.outcome is RunOutcome.PASSED and not expected:
        state, reason = UNFINISHED, "its run PASSED, but its task did not come to its end"
    return replace(unfinished, cell=str(run.cell), outcome=run.outcome, as_expected=expected, state=state, reason=reason), run


def _change(store: Store, run: Run) -> Change | None:
    """What ``run`` changed beside the earlier runs of its cell with its seed."""
    earlier = [other for other in store.runs(Wanted(cell=run.cell)) if other.seed == run.seed and other.began_at < run.began_at]
    return change([*reversed(earlier), run])


__all__ = ["Night", "Summary", "Told"]
