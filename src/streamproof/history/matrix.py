"""The history as a matrix: a row for each strategy (and what it is held to), a column for each fault, as of the newest runs.

A *square* holds all cells of one row whose plan names the same faults: a sweep crashes one strategy at many steps, each of which is a cell
of its own. A square is as well as its worst cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from statistics import median

from streamproof.history.changes import USUAL, Bounds, Change, Kind, change
from streamproof.history.record import NO_FAULT, RANDOM, Cell, Run

TREND = 12


class State(StrEnum):
    """How a square is shown. ``bad``: a guarantee is broken. ``doubt``: flaky, not shown, slower. ``unknown``: every run was stopped."""

    BAD = "bad"
    DOUBT = "doubt"
    UNKNOWN = "unknown"
    GOOD = "good"


_STATES = {
    Kind.NEWLY_BROKEN: State.BAD,
    Kind.STILL_BROKEN: State.BAD,
    Kind.FLAKY: State.DOUBT,
    Kind.NOT_SHOWN: State.DOUBT,
    Kind.SLOWER: State.DOUBT,
}


@dataclass(frozen=True, order=True)
class Line:
    """A row of the matrix."""

    strategy: str
    guarantee: str
    pipeline: str


@dataclass(frozen=True)
class Entry:
    """One cell with its runs, the oldest first. ``change`` is None where every run was stopped."""

    cell: Cell
    runs: tuple[Run, ...]
    change: Change | None

    @property
    def state(self) -> State:
        return State.UNKNOWN if self.change is None else _STATES.get(self.change.kind, State.GOOD)

    @property
    def newest(self) -> Run:
        """The run that the entry's state rests on."""
        return self.runs[-1] if self.change is None else self.change.newest


@dataclass(frozen=True)
class Square:
    """``entries`` are its cells, the worst first."""

    entries: tuple[Entry, ...]

    @property
    def state(self) -> State:
        return self.entries[0].state

    @property
    def trend(self) -> tuple[float | None, ...]:
        """The recovery time, run by run up to the newest; of several cells the median."""
        longest = min(TREND, max(len(entry.runs) for entry in self.entries))
        trend = []
        for back in range(longest, 0, -1):
            recoveries = [entry.runs[-back].recovery_s for entry in self.entries if len(entry.runs) >= back]
            measured = [value for value in recoveries if value is not None]
            trend.append(median(measured) if measured else None)
        return tuple(trend)


@dataclass(frozen=True)
class Coverage:
    """The windows of a job that were seen in some runs, and those of them in which it was killed in one of them."""

    known: tuple[str, ...]
    hit: frozenset[str]

    @property
    def missed(self) -> tuple[str, ...]:
        return tuple(window for window in self.known if window not in self.hit)

    def __str__(self) -> str:
        return f"killed in {len(self.known) - len(self.missed)} of {len(self.known)} windows"


def coverage(runs: Iterable[Run]) -> Coverage | None:
    """What the runs of one job come to together; None when the messages of none were read."""
    runs = list(runs)
    known = tuple(dict.fromkeys(window for run in runs for window in run.windows))
    return Coverage(known, frozenset(window for run in runs for window in run.windows_hit)) if known else None


@dataclass(frozen=True)
class Matrix:
    """``squares`` lacks those that were never run."""

    lines: tuple[Line, ...]
    columns: tuple[str, ...]
    squares: dict[tuple[Line, str], Square]

    def coverage(self, line: Line) -> Coverage | None:
        """In which windows the job of a row was killed, in all of its runs."""
        squares = (square for (row, _), square in self.squares.items() if row == line)
        return coverage(run for square in squares for entry in square.entries for run in entry.runs)

    @property
    def changes(self) -> list[Change]:
        """What changed in each cell, the worst first."""
        changes = [entry.change for square in self.squares.values() for entry in square.entries if entry.change is not None]
        return sorted(changes, key=lambda change: (list(Kind).index(change.kind), change.cell))


def matrix(runs: Sequence[Run], bounds: Bounds = USUAL) -> Matrix:
    ordered = sorted(runs, key=lambda run: (run.cell, run.began_at, run.run))
    entries: dict[tuple[Line, str], list[Entry]] = {}
    for cell, group in groupby(ordered, key=lambda run: run.cell):
        cell_runs = tuple(group)
        place = Line(cell.strategy, cell.guarantee, cell.pipeline), column(cell_runs[-1])
        entries.setdefault(place, []).append(Entry(cell, cell_runs, change(cell_runs, bounds)))
    squares = {place: Square(tuple(sorted(in_square, key=_urgency))) for place, in_square in entries.items()}
    lines, columns = sorted({line for line, _ in squares}), {name for _, name in squares}
    return Matrix(tuple(lines), tuple(sorted(columns, key=lambda name: (name == RANDOM, name.count("+"), name != NO_FAULT, name))), squares)


def column(run: Run) -> str:
    """The faults that a run's plan names, without their parameters."""
    return RANDOM if run.faults.startswith(f"{RANDOM}(") else " + ".join(run.fault_names) or NO_FAULT


def _urgency(entry: Entry) -> tuple[int, int, Cell]:
    kind = list(Kind).index(entry.change.kind) if entry.change is not None else 0
    return list(State).index(entry.state), kind, entry.cell
