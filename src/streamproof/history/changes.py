"""What changed in a cell since it was run before: a pure function over the cell's runs.

What counts: PASSED and FAILED runs *say* something of the delivery; INCONCLUSIVE and ERROR runs were meant to and do not; ABORTED ones
were stopped by somebody and are left out. The *newest* run is the last of those left, *before* it is the last earlier one that says
something. The first of these that applies:

    not shown      the newest is INCONCLUSIVE or ERROR: whether the guarantee still holds is not known
    flaky          of the last 10 runs that say something, had the newest one's seed, settings and versions, and the newest itself, the
                   outcome went over from PASSED to FAILED or back at least 3 times: nothing that is known explains it
    still broken   the newest FAILED, and so did the one before
    newly broken   the newest FAILED, and the one before PASSED, or there is none
    fixed          the newest PASSED, and the one before FAILED
    new            the newest PASSED, and there is none before
    slower         the newest PASSED, but its time until the first output after a fault, or until it was caught up, is above 1.5 times
                   the median of the last 10 PASSED runs with its settings, and above that median by more than 1 s. With fewer than 3 such
                   runs nothing is called slow. (Nights that stay slow become the median: it is told for about five of them.)
    stable         otherwise
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, islice, pairwise
from statistics import median

from streamproof.history.compare import Difference, conditions, same_conditions, same_settings
from streamproof.history.record import Cell, Run
from streamproof.verdict.decide import RunOutcome

TIMES = {"recovery_s": "the first output after a fault", "caught_up_s": "the end of its backlog"}


class Kind(StrEnum):
    """In the order in which somebody wants to read of them."""

    NEWLY_BROKEN = "newly broken"
    STILL_BROKEN = "still broken"
    FLAKY = "flaky"
    NOT_SHOWN = "not shown"
    SLOWER = "slower"
    FIXED = "fixed"
    NEW = "new"
    STABLE = "stable"


ALARMING = (Kind.NEWLY_BROKEN, Kind.STILL_BROKEN, Kind.FLAKY, Kind.NOT_SHOWN, Kind.SLOWER)


@dataclass(frozen=True)
class Bounds:
    """``window`` runs are looked at; ``least`` of them make a median; ``switches`` of the outcome make a cell flaky."""

    window: int = 10
    least: int = 3
    factor: float = 1.5
    margin_s: float = 1.0
    switches: int = 3


USUAL = Bounds()


@dataclass(frozen=True)
class Slower:
    """A time of the newest run that is out of bounds, and the median that it is held to."""

    figure: str
    seconds: float
    usual_s: float


@dataclass(frozen=True)
class Change:
    """``since`` is the run with which the present state began. ``differs`` is what was another in the run before."""

    kind: Kind
    cell: Cell
    newest: Run
    before: Run | None
    since: Run
    slower: tuple[Slower, ...]
    differs: tuple[Difference, ...]
    reason: str


def changes(runs: Iterable[Run], bounds: Bounds = USUAL) -> list[Change]:
    """One change a cell, the worst first. ``runs`` may be of many cells and in any order; a cell without a run that counts has none."""
    ordered = sorted(runs, key=lambda run: (run.cell, run.began_at, run.run))
    detected = [change(list(cell_runs), bounds) for _, cell_runs in groupby(ordered, key=lambda run: run.cell)]
    return sorted((item for item in detected if item is not None), key=lambda item: (list(Kind).index(item.kind), item.cell))


def change(history: Sequence[Run], bounds: Bounds = USUAL) -> Change | None:
    """What the newest run of one cell changed. ``history`` is that cell's runs, the oldest first; None when none of them counts."""
    counted = [run for run in history if run.outcome is not RunOutcome.ABORTED]
    if not counted:
        return None
    newest, before = counted[-1], next((run for run in reversed(counted[:-1]) if _says(run)), None)
    slower = _slower(counted, bounds)
    kind = _kind(counted, before, slower, bounds)
    differs = conditions(before, newest) if before is not None else ()
    since = _since(counted)
    return Change(kind, newest.cell, newest, before, since, slower, differs, _reason(kind, newest, since, slower, differs))


def _says(run: Run) -> bool:
    return run.outcome in (RunOutcome.PASSED, RunOutcome.FAILED)


def _kind(counted: Sequence[Run], before: Run | None, slower: Sequence[Slower], bounds: Bounds) -> Kind:
    newest = counted[-1]
    if not _says(newest):
        return Kind.NOT_SHOWN
    if _switches(counted, bounds) >= bounds.switches:
        return Kind.FLAKY
    if newest.outcome is RunOutcome.FAILED:
        return Kind.STILL_BROKEN if before is not None and before.outcome is RunOutcome.FAILED else Kind.NEWLY_BROKEN
    if before is None:
        return Kind.NEW
    if before.outcome is RunOutcome.FAILED:
        return Kind.FIXED
    return Kind.SLOWER if slower else Kind.STABLE


def _switches(counted: Sequence[Run], bounds: Bounds) -> int:
    """How often the outcome went over from one to the other, with nothing else changed that is known."""
    newest = counted[-1]
    alike = _newest((run for run in reversed(counted) if _says(run) and same_conditions(run, newest)), bounds)
    return sum(one.outcome is not other.outcome for one, other in pairwise(alike))


def _slower(counted: Sequence[Run], bounds: Bounds) -> tuple[Slower, ...]:
    newest = counted[-1]
    before = reversed(counted[:-1])
    earlier = _newest((run for run in before if run.outcome is RunOutcome.PASSED and same_settings(run, newest)), bounds)
    slower = []
    for figure in TIMES:
        seconds, earlier_s = getattr(newest, figure), [value for run in earlier if (value := getattr(run, figure)) is not None]
        if seconds is None or len(earlier_s) < bounds.least:
            continue
        usual_s = median(earlier_s)
        if seconds > usual_s * bounds.factor and seconds > usual_s + bounds.margin_s:
            slower.append(Slower(figure, seconds, usual_s))
    return tuple(slower)


def _newest(backwards: Iterable[Run], bounds: Bounds) -> list[Run]:
    """Of the runs, which come the newest first, as many as are looked at; the oldest first."""
    return list(islice(backwards, bounds.window))[::-1]


def _since(counted: Sequence[Run]) -> Run:
    """The first of the newest runs that have one state: PASSED, FAILED, or neither."""
    since = counted[-1]
    for run in reversed(counted):
        if (run.outcome if _says(run) else None) != (since.outcome if _says(since) else None):
            break
        since = run
    return since


def _reason(kind: Kind, newest: Run, since: Run, slower: Sequence[Slower], differs: Sequence[Difference]) -> str:
    state = f"{newest.outcome}{'' if since is newest else f' since {since.run}'}"
    if kind is Kind.FLAKY:
        return f"{state}, after it went over from one to the other and back with nothing changed"
    if kind is Kind.SLOWER:
        state = "; ".join(f"{entry.seconds:.1f} s until {TIMES[entry.figure]}, {entry.usual_s:.1f} s as a rule" for entry in slower)
    elif newest.outcome is not RunOutcome.PASSED:
        state += f": {newest.reason}"
    if differs and kind is not Kind.STABLE:
        state += f" (changed: {', '.join(f'{entry.name} {entry.first} to {entry.second}' for entry in differs)})"
    return state
