"""The history as pages that need no network: the matrix, what is broken where and since when, and one cell with its runs.

In the matrix each run is a bar: its height is the recovery time, its colour and outline the outcome. Colours come from the style sheet, for
light and dark, and nothing is told by a colour alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from streamproof.evidence.folder import write_atomically
from streamproof.history import charts
from streamproof.history.changes import Change, Kind
from streamproof.history.matrix import TREND, Line, Matrix, Square, matrix
from streamproof.history.record import Cell, Run
from streamproof.report import pages, vega
from streamproof.report.vega import Figure
from streamproof.verdict.decide import RunOutcome

BAR, GAP, HEIGHT, LEAST = 5, 2, 26, 3


def write(runs: Sequence[Run], path: Path, kept: Path | None = None) -> Path:
    """Write the matrix as one file, with charts, and links to the runs' reports as they lie on this disk.

    ``kept`` is a folder in which the charts' library is looked for, and left.
    """
    write_atomically(path, html(matrix(runs), lambda run: _beside(run, path), library=vega.library(kept)))
    return path


def _beside(run: Run, page: Path) -> str | None:
    report = Path(run.folder) / "report.html"
    return quote(os.path.relpath(report, page.resolve().parent)) if report.is_file() else None


def html(
    matrix: Matrix, link: Callable[[Run], str | None], cell: Callable[[Cell], str | None] = lambda cell: None, library: str | None = None
) -> str:
    """The matrix. ``link`` says where the report of a run is, None where it is gone; ``cell`` where a cell has a page of its own.

    With the charts' ``library`` each strategy has a chart of its recovery times.
    """
    scripts = [library, vega.START] if library is not None else []
    anchors = {place: f"square-{number}" for number, place in enumerate(matrix.squares)}
    runs = [run for square in matrix.squares.values() for entry in square.entries for run in entry.runs]
    changes = matrix.changes
    page = _environment().get_template("history.html.j2")
    return page.render(
        matrix=matrix,
        squares=[[(name, matrix.squares.get((line, name)), anchors.get((line, name))) for name in matrix.columns] for line in matrix.lines],
        changed=[change for change in changes if change.kind not in (Kind.STABLE, Kind.NEW)],
        counts=[(kind, sum(change.kind is kind for change in changes)) for kind in Kind],
        run_count=len(runs),
        began=min((run.began_at for run in runs), default=None),
        ended=max((run.began_at for run in runs), default=None),
        title=_title,
        link=link,
        cell=cell,
        figures=[_trends(matrix, line, f"trends{number}") if scripts else None for number, line in enumerate(matrix.lines)],
        scripts=[Markup(script) for script in scripts],
        allowed=vega.allowed(*scripts) if scripts else Markup("'none'"),
        bars=bars,
        trend=trend,
        most_bars=TREND,
        rendered=_now(),
    )


def _trends(matrix: Matrix, line: Line, name: str) -> Figure | None:
    squares = [square for (row, _), square in matrix.squares.items() if row == line]
    return charts.draw_trends({entry.cell.faults: entry.runs[-TREND:] for square in squares for entry in square.entries}, name)


def cell_html(runs: Sequence[Run], link: Callable[[Run], str | None], home: str, scripts: Sequence[str]) -> str:
    """The page of one cell, given its runs. ``home`` is where the matrix is, ``scripts`` where those are that draw charts."""
    ((square,),) = [matrix(runs).squares.values()]
    (entry,) = square.entries
    page = _environment().get_template("cell.html.j2")
    figure = charts.draw_recovery(entry.runs)
    return page.render(entry=entry, runs=entry.runs[::-1], figure=figure, link=link, home=home, scripts=scripts, rendered=_now())


def _environment() -> jinja2.Environment:
    environment = pages.environment(Path(__file__).parent / "templates")
    environment.filters.update(day=_day, moment=_moment, since=_since, seconds=_seconds, faults=_faults, summary=_summary)
    return environment


def _now() -> str:
    return _moment(datetime.now(UTC)) + " UTC"


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def bars(runs: Sequence[Run]) -> Markup:
    """The last runs of one cell, a bar each."""
    shown = runs[-TREND:]
    summary = ", ".join(f"{run.outcome} {_seconds(run.recovery_s)}" for run in shown)
    return _draw([(run.recovery_s, _bar(run.outcome), f"{run.run}: {run.outcome}, {_seconds(run.recovery_s)}") for run in shown], summary)


def trend(square: Square) -> Markup:
    """The recovery times of a square, run by run."""
    if len(square.entries) == 1:
        return bars(square.entries[0].runs)
    labels = [_seconds(value) for value in square.trend]
    return _draw([(value, "some", label) for value, label in zip(square.trend, labels, strict=True)], f"median {', '.join(labels)}")


def _bar(outcome: RunOutcome) -> str:
    return {RunOutcome.PASSED: "good", RunOutcome.FAILED: "bad", RunOutcome.ABORTED: "stopped"}.get(outcome, "doubt")


def _draw(values: Sequence[tuple[float | None, str, str]], label: str) -> Markup:
    """Bars side by side, the newest at the right; one without a time is a stub."""
    most = max((value for value, _, _ in values if value is not None), default=0) or 1
    width = len(values) * (BAR + GAP)
    parts = [
        Markup(
            '<svg class="bars" viewBox="0 0 {} {}" width="{}" height="{}" role="img" aria-label="Recovery, the oldest run first: {}">'
        ).format(width, HEIGHT, width, HEIGHT, label)
    ]
    for place, (value, kind, title) in enumerate(values):
        height = LEAST if value is None else round(max(LEAST, value / most * (HEIGHT - 2)), 1)
        parts.append(
            Markup('<rect class="bar {}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>').format(
                kind, place * (BAR + GAP), round(HEIGHT - height, 1), BAR, height, title
            )
        )
    return Markup("").join([*parts, Markup("</svg>")])


def _title(line: Line, lines: Sequence[Line]) -> str:
    """A row's name; the pipeline only where there are several."""
    return line.strategy if len({other.pipeline for other in lines}) == 1 else f"{line.strategy}, {line.pipeline}"


def _summary(square: Square) -> str:
    """A square in a few words: ``stable``, or ``1 newly broken, 11 stable``."""
    kinds = [entry.change.kind if entry.change is not None else "stopped" for entry in square.entries]
    if len(kinds) == 1:
        return str(kinds[0])
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


def _faults(text: str) -> Markup:
    """A description of faults that may be broken after its commas and opening brackets only."""
    return Markup("<wbr>").join(Markup.escape(part) for part in text.replace("(", "(\0").replace("_", "_\0").split("\0"))


def _since(change: Change | None) -> str:
    """When the present state began; a time that is out of bounds, and an outcome that comes and goes, have no such day."""
    return "" if change is None or change.kind in (Kind.SLOWER, Kind.FLAKY) else f"since {_day(change.since.began_at)}"


def _day(moment: datetime | None) -> str:
    return "–" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d")


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"
