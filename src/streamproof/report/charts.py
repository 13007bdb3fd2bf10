"""The timeline of a run, described for Vega.

The timeline is four panels over one time axis: the rate of the output, the backlog, the micro-batches (a bar each, as wide as the batch was
long and as high as its records), and the driver's starts, exits and failpoints. In each the phases are bands, and an injection is a shaded
window from the moment it was injected until it was healed. Nothing depends on colour alone: windows have edges and a name, moments a shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from streamproof.report.timeline import Timeline, describe
from streamproof.report.vega import Figure, figure

NAMED_FAULTS = 6
PHASES = {"start": "var(--impact)", "steady": "var(--steady)", "impact": "var(--impact)", "recovery": "var(--recovery)"}
SHAPES = {"start": "triangle-up", "exit": "cross", "failpoint": "diamond"}
SHAPE_COLOURS = {"start": "var(--good)", "exit": "var(--bad)", "failpoint": "var(--bad)"}


def draw(shown: Timeline) -> Figure:
    """The timeline of a run."""
    import altair as alt

    panels: list[Any] = []
    if shown.output:
        panels.append(_panel(shown, "output", "output, records/s", 110, [_output(shown)]))
    if shown.backlog:
        panels.append(_panel(shown, "backlog", "backlog: records sent, not yet to be read", 90, [_backlog(shown)]))
    panels.append(_panel(shown, "batches", "micro-batches, records each", 80, [_batches(shown)]))
    panels.append(_panel(shown, "driver", "driver", 38, [_moments(shown)]))
    return figure(alt.vconcat(*panels), "timeline", describe(shown))


def _panel(shown: Timeline, name: str, title: str, height: int, layers: Sequence[Any]) -> Any:
    import altair as alt

    back = [_phases(shown, name), *layers, *_faults(shown, name)]
    if name == "output" or (not shown.output and name == "batches"):
        back += _names(shown, name)
    return alt.layer(*back).properties(name=name, title=alt.Title(title), height=height)


def _time(shown: Timeline, panel: str, field: str) -> Any:
    """The common axis; only the last panel writes it out."""
    import altair as alt

    last = panel == "driver"
    title = f"seconds since {shown.began:%Y-%m-%d %H:%M:%S} UTC" if last else None
    axis = alt.Axis(title=title, labels=last, ticks=last, grid=False, domain=True)
    return alt.X(f"{field}:Q", scale=alt.Scale(domain=[0, shown.end_s], nice=False), axis=axis)


def _phases(shown: Timeline, panel: str) -> Any:
    import altair as alt

    rows = [{"phase": phase.name, "from": phase.start_s, "to": phase.end_s} for phase in shown.phases]
    colour = alt.Color("phase:N", scale=alt.Scale(domain=list(PHASES), range=list(PHASES.values())), legend=None)
    chart = alt.Chart(alt.InlineData(values=rows), name=f"{panel}_phases").mark_rect(clip=True)
    return chart.encode(x=_time(shown, panel, "from"), x2="to:Q", color=colour)


def _faults(shown: Timeline, panel: str) -> list[Any]:
    import altair as alt

    rows = [{"fault": fault.name, "from": fault.start_s, "to": fault.end_s} for fault in shown.faults]
    data = alt.InlineData(values=rows)
    tooltip = [
        alt.Tooltip("fault:N"),
        alt.Tooltip("from:Q", title="injected, s", format=".1f"),
        alt.Tooltip("to:Q", title="healed, s", format=".1f"),
    ]
    window = alt.Chart(data, name=f"{panel}_faults").mark_rect(clip=True, color="var(--hatch)", opacity=0.16)
    edges = [
        alt.Chart(data, name=f"{panel}_{edge}")
        .mark_rule(clip=True, color="var(--hatch)", strokeDash=dash)
        .encode(x=_time(shown, panel, edge))
        for edge, dash in (("from", [1, 0]), ("to", [4, 3]))
    ]
    return [window.encode(x=_time(shown, panel, "from"), x2="to:Q", tooltip=tooltip), *edges]


def _names(shown: Timeline, panel: str) -> list[Any]:
    """The names of the faults, one below the other, and of the phases; those of the right half stand to the left of their window."""
    import altair as alt

    faults: list[dict[str, Any]] = [
        {"name": fault.name, "at": fault.start_s, "y": 18 + 13 * row} for row, fault in enumerate(shown.faults[:NAMED_FAULTS])
    ]
    phases = [{"name": phase.name, "at": phase.start_s, "y": 6} for phase in shown.phases if phase.end_s - phase.start_s > shown.end_s / 12]
    drawn = []
    for align, dx in (("left", 4), ("right", -4)):
        labelled = [row for row in faults if (row["at"] <= shown.end_s * 0.6) == (align == "left")]
        halo: dict[str, Any] = {"align": align, "dx": dx, "baseline": "middle", "fontSize": 11, "fontWeight": 600}
        data = alt.InlineData(values=labelled)
        place = {"x": _time(shown, panel, "at"), "y": alt.Y("y:Q", scale=None, axis=None), "text": "name:N"}
        drawn.append(alt.Chart(data).mark_text(**halo, stroke="var(--card)", strokeWidth=3, color="var(--card)").encode(**place))
        drawn.append(alt.Chart(data, name=f"fault_names_{align}").mark_text(**halo, color="var(--bad)").encode(**place))
    label = alt.Chart(alt.InlineData(values=phases), name="phase_names").mark_text(align="left", dx=4, baseline="middle", fontSize=11)
    return [label.encode(x=_time(shown, panel, "at"), y=alt.Y("y:Q", scale=None, axis=None), text="name:N"), *drawn]


def _room(values: Iterable[float]) -> Any:
    """A scale that leaves room for names above the largest value."""
    import altair as alt

    return alt.Scale(domain=[0, 1.35 * (max(values, default=0) or 1)], nice=False)


def _output(shown: Timeline) -> Any:
    import altair as alt

    rows = [{"at": at, "rate": rate} for at, rate in shown.output]
    tooltip = [alt.Tooltip("at:Q", title="second", format=".1f"), alt.Tooltip("rate:Q", title="records/s", format=",.0f")]
    chart = alt.Chart(alt.InlineData(values=rows), name="output_rate")
    drawn = chart.mark_area(
        interpolate="step-after", color="var(--curve)", fillOpacity=0.25, line={"color": "var(--curve)", "strokeWidth": 1.5}
    )
    return drawn.encode(x=_time(shown, "output", "at"), y=alt.Y("rate:Q", scale=_room(rate for _, rate in shown.output)), tooltip=tooltip)


def _backlog(shown: Timeline) -> Any:
    import altair as alt

    rows = [{"at": at, "waiting": count} for at, count in shown.backlog]
    tooltip = [alt.Tooltip("at:Q", title="second", format=".1f"), alt.Tooltip("waiting:Q", title="records waiting", format=",")]
    chart = alt.Chart(alt.InlineData(values=rows), name="backlog_count")
    drawn = chart.mark_area(color="var(--curve)", fillOpacity=0.25, line={"color": "var(--curve)", "strokeWidth": 1.5})
    return drawn.encode(x=_time(shown, "backlog", "at"), y=alt.Y("waiting:Q"), tooltip=tooltip)


def _batches(shown: Timeline) -> Any:
    import altair as alt

    rows = [
        {"from": one.start_s, "to": one.at_s, "rows": one.rows, "batch": one.batch, "start": one.start, "rate": round(one.records_per_s)}
        for one in shown.batches
    ]
    tooltip = [
        alt.Tooltip("batch:Q", title="batch"),
        alt.Tooltip("start:Q", title="driver start"),
        alt.Tooltip("rows:Q", title="records", format=","),
        alt.Tooltip("rate:Q", title="records/s", format=","),
        alt.Tooltip("to:Q", title="committed, s", format=".1f"),
    ]
    bar = alt.Chart(alt.InlineData(values=rows), name="batch_bars").mark_rect(
        clip=True, color="var(--curve)", fillOpacity=0.45, stroke="var(--curve)", strokeWidth=1
    )
    return bar.encode(
        x=_time(shown, "batches", "from"),
        x2="to:Q",
        y=alt.Y("rows:Q", scale=alt.Undefined if shown.output else _room(one.rows for one in shown.batches)),
        y2=alt.datum(0),
        tooltip=tooltip,
    )


def _moments(shown: Timeline) -> Any:
    import altair as alt

    rows = [
        {"at": mark.at_s, "kind": mark.kind, "what": mark.label, "lane": 8 + 11 * list(SHAPES).index(mark.kind)} for mark in shown.marks
    ]
    chart = alt.Chart(alt.InlineData(values=rows), name="driver_moments").mark_point(filled=True, size=90, opacity=1, clip=False)
    return chart.encode(
        x=_time(shown, "driver", "at"),
        y=alt.Y("lane:Q", scale=None, axis=None),
        shape=alt.Shape("kind:N", scale=alt.Scale(domain=list(SHAPES), range=list(SHAPES.values())), legend=None),
        fill=alt.Fill("kind:N", scale=alt.Scale(domain=list(SHAPES), range=list(SHAPE_COLOURS.values())), legend=None),
        tooltip=[alt.Tooltip("what:N", title="driver"), alt.Tooltip("at:Q", title="second", format=".1f")],
    )
