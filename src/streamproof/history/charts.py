"""The recovery times of a cell's runs, described for Vega."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from streamproof.history.record import Run
from streamproof.report.vega import Figure, figure
from streamproof.verdict.decide import RunOutcome

OUTCOMES = {
    RunOutcome.PASSED: ("circle", "var(--good)"),
    RunOutcome.FAILED: ("cross", "var(--bad)"),
    RunOutcome.INCONCLUSIVE: ("diamond", "var(--doubt)"),
    RunOutcome.ERROR: ("square", "var(--doubt)"),
    RunOutcome.ABORTED: ("triangle-down", "var(--soft)"),
}
RECOVERIES = {"recovery_s": "until the first output after the fault, s", "caught_up_s": "until the backlog was gone, s"}


def draw_recovery(runs: Sequence[Run]) -> Figure:
    """The recovery times of a cell, run by run, the oldest first. A run without one is a mark at the bottom."""
    import altair as alt

    panels = [_recoveries(runs, figure, title) for figure, title in RECOVERIES.items()]
    sentences = [f"{run.run}: {run.outcome}, {'no time' if run.recovery_s is None else f'{run.recovery_s:.1f} s'}" for run in runs]
    return figure(alt.vconcat(*panels), "recovery", f"Recovery of {len(runs)} runs, the oldest first. {'; '.join(sentences)}.")


def draw_trends(cells: dict[str, Sequence[Run]], name: str) -> Figure | None:
    """The recovery times of several cells side by side, the newest runs at the right. None when no run has one."""
    import altair as alt

    rows: list[dict[str, Any]] = [
        {"cell": cell, "back": number - len(runs) + 1, "run": run.run, "outcome": run.outcome, "seconds": run.recovery_s}
        for cell, runs in cells.items()
        for number, run in enumerate(runs)
        if run.recovery_s is not None
    ]
    if not rows:
        return None
    data = alt.InlineData(values=rows)
    first = min(row["back"] for row in rows)
    axis = alt.Axis(title="runs before the newest", grid=False, values=_ticks(0, -first, -1), labelExpr="abs(datum.value)")
    x = alt.X("back:Q", axis=axis, scale=alt.Scale(domain=[first - 0.5, 0.5], nice=False))
    y = alt.Y("seconds:Q", scale=_seconds(row["seconds"] for row in rows))
    line = alt.Chart(data, name=f"{name}_lines").mark_line(color="var(--curve)", opacity=0.5).encode(x=x, y=y, detail="cell:N")
    tooltip = [alt.Tooltip(f"{field}:N") for field in ("cell", "run", "outcome")] + [alt.Tooltip("seconds:Q", format=".2f")]
    points = alt.Chart(data, name=f"{name}_runs").mark_point(filled=True, size=60, opacity=1)
    panel = alt.layer(line, points.encode(x=x, y=y, shape=_by_outcome("shape"), fill=_by_outcome("fill"), tooltip=tooltip))
    newest = ", ".join(f"{cell} {runs[-1].recovery_s:.1f} s" for cell, runs in cells.items() if runs and runs[-1].recovery_s is not None)
    words = f"Recovery times of {len(cells)} cells, run by run. Of the newest: {newest or 'none'}."
    return figure(alt.vconcat(panel.properties(title=alt.Title(RECOVERIES["recovery_s"]), height=120)), name, words)


def _recoveries(runs: Sequence[Run], name: str, title: str) -> Any:
    import altair as alt

    rows = [
        {"number": number, "run": run.run, "day": f"{run.began_at:%Y-%m-%d %H:%M}", "outcome": run.outcome, "seconds": getattr(run, name)}
        for number, run in enumerate(runs, 1)
    ]
    last = name == list(RECOVERIES)[-1]
    axis = alt.Axis(title="run by run, the oldest first" if last else None, labels=last, grid=False, values=_ticks(1, len(runs) - 1))
    x = alt.X("number:Q", axis=axis, scale=alt.Scale(domain=[0.5, len(runs) + 0.5], nice=False))
    tooltip = [alt.Tooltip(f"{field}:N") for field in ("run", "day", "outcome")] + [alt.Tooltip("seconds:Q", format=".2f")]
    y = alt.Y("seconds:Q", scale=_seconds(row["seconds"] for row in rows))
    measured = alt.InlineData(values=[row for row in rows if row["seconds"] is not None])
    line = alt.Chart(measured, name=f"{name}_line").mark_line(color="var(--curve)", opacity=0.5).encode(x=x, y=y)
    points = alt.Chart(alt.InlineData(values=[{**row, "seconds": row["seconds"] or 0} for row in rows]), name=f"{name}_runs")
    drawn = points.mark_point(filled=True, size=80, opacity=1)
    layers = (line, drawn.encode(x=x, y=y, shape=_by_outcome("shape"), fill=_by_outcome("fill"), tooltip=tooltip))
    return alt.layer(*layers).properties(name=name, title=alt.Title(title), height=110)


def _ticks(first: int, more: int, way: int = 1) -> list[int]:
    """Whole numbers to write at an axis of runs, some ten at most; left to itself it would write halves as if they were whole."""
    return list(range(first, first + way * (more + 1), way * (1 + more // 10)))


def _seconds(values: Iterable[float | None]) -> Any:
    """A scale of times that leaves room for the mark of the longest."""
    import altair as alt

    return alt.Scale(domain=[0, 1.1 * max((value or 0 for value in values), default=0) or 1], nice=False)


def _by_outcome(channel: str) -> Any:
    import altair as alt

    shapes, colours = zip(*OUTCOMES.values(), strict=True)
    if channel == "shape":
        return alt.Shape("outcome:N", scale=alt.Scale(domain=list(OUTCOMES), range=list(shapes)), legend=None)
    return alt.Fill("outcome:N", scale=alt.Scale(domain=list(OUTCOMES), range=list(colours)), legend=None)
