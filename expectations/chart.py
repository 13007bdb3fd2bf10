"""The run's timeline as a picture: what was committed when, at what rate, and what was being broken meanwhile.

Three panels over one time axis: the records committed so far, the rate of each micro-batch, and the backlog, which are records that were
sent and could not be read yet. Phases are bands, an injection is a hatched window from the moment it struck until it was healed, each
micro-batch is a tick at the bottom, and driver starts and exits are lines. Drawn as SVG with classes only, so that the page's style sheet
gives the colours for light and dark; nothing in it needs a script.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from delivery.recovery import Flow

POINTS = 400


@dataclass(frozen=True)
class Span:
    """A stretch of the run, in seconds since its start."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Mark:
    """A moment of the run: a driver's ``start`` or ``exit``, or a ``failpoint``."""

    kind: str
    at_s: float
    label: str


@dataclass(frozen=True)
class Batch:
    """One committed micro-batch. ``committed`` counts the records that the job has passed over by then."""

    at_s: float
    committed: int
    records_per_s: float
    batch: int
    start: int
    rows: int


@dataclass(frozen=True)
class Timeline:
    """What the chart shows. ``backlog`` is how many records were waiting at some moments in order; empty where that is not known."""

    began: datetime
    end_s: float
    phases: tuple[Span, ...]
    faults: tuple[Span, ...]
    marks: tuple[Mark, ...]
    batches: tuple[Batch, ...]
    backlog: tuple[tuple[float, int], ...] = ()


def timeline(events: Sequence[dict[str, Any]], progress: Sequence[dict[str, Any]], flow: Flow | None = None) -> Timeline | None:
    """The timeline of a run, from its journal, its progress and its records. None when the first two name no moment to draw."""
    shown = ("phase", "driver_started", "driver_exited", "injection_started", "injection_injected", "injection_healed", "failpoint_fired")
    moments = [_moment(event["at"]) for event in events if event["event"] in shown]
    commits = [_moment(line["committed_at"]) for line in progress]
    if not moments and not commits:
        return None
    began = min(moments + commits)
    end_s = max((moment - began).total_seconds() for moment in moments + commits) or 1.0
    return Timeline(
        began,
        end_s,
        tuple(_phases(events, began, end_s)),
        tuple(_faults(events, began, end_s)),
        tuple(_marks(events, began)),
        tuple(_batches(progress, began)),
        tuple(_backlog(flow, began, end_s)) if flow is not None else (),
    )


def _moment(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp).astimezone(UTC)


def _phases(events: Sequence[dict[str, Any]], began: datetime, end_s: float) -> Iterable[Span]:
    starts = [(str(event["phase"]), (_moment(event["at"]) - began).total_seconds()) for event in events if event["event"] == "phase"]
    for number, (phase, start_s) in enumerate(starts):
        if phase != "done":
            yield Span(phase, start_s, starts[number + 1][1] if number + 1 < len(starts) else end_s)


def _faults(events: Sequence[dict[str, Any]], began: datetime, end_s: float) -> Iterable[Span]:
    struck: dict[str, float] = {}
    healed: dict[str, float] = {}
    for event in events:
        if event["event"] in ("injection_started", "injection_injected", "injection_healed"):
            into = healed if event["event"] == "injection_healed" else struck
            into[str(event["injection"])] = (_moment(event["at"]) - began).total_seconds()
    for name, start_s in struck.items():
        yield Span(name, start_s, max(start_s, healed.get(name, end_s)))


def _marks(events: Sequence[dict[str, Any]], began: datetime) -> Iterable[Mark]:
    for event in events:
        at_s = (_moment(event["at"]) - began).total_seconds()
        if event["event"] == "driver_started":
            yield Mark("start", at_s, f"driver start {event.get('start')}")
        elif event["event"] == "driver_exited":
            yield Mark("exit", at_s, f"driver {event.get('start')} exited ({event.get('reason') or event.get('code')})")
        elif event["event"] == "failpoint_fired":
            yield Mark("failpoint", at_s, f"{event.get('failpoint')} fired in batch {event.get('batch')}")


def _batches(progress: Sequence[dict[str, Any]], began: datetime) -> Iterable[Batch]:
    until: dict[str, int] = {}  # the run's topics are its own: they begin at offset 0
    for line in sorted(progress, key=lambda line: str(line["committed_at"])):
        for partition, offset in (line.get("until") or {}).items():
            until[partition] = max(until.get(partition, 0), offset)
        seconds = max((_moment(line["committed_at"]) - _moment(line["started_at"])).total_seconds(), 0.001)
        committed = sum(until.values())
        at_s = (_moment(line["committed_at"]) - began).total_seconds()
        yield Batch(at_s, committed, line["rows"] / seconds, line["batch"], line["start"], line["rows"])


def _backlog(flow: Flow, began: datetime, end_s: float) -> Iterable[tuple[float, int]]:
    seconds = np.linspace(0, end_s, POINTS)
    waiting = flow.backlog(np.round(began.timestamp() * 1000 + seconds * 1000).astype(np.int64))
    return zip(seconds.tolist(), waiting.tolist(), strict=True)


class _Frame:
    """Where a second, a count and a rate lie on the paper."""

    def __init__(self, shown: Timeline, width: int) -> None:
        self.width = width
        self.narrow = width < 600
        self.left, self.right = 52, width - 10
        self.top, self.middle = 40, 212  # upper panel
        self.signs = 228  # drivers and failpoints
        self.lower, self.bottom = 262, 344  # lower panel
        self.last, self.base = (378, 460) if shown.backlog else (self.bottom, self.bottom)  # last panel, where there is one
        self.ticks = self.base + 10  # one tick a micro-batch
        self.height = self.base + 56
        self.times = _steps(shown.end_s, 5 if self.narrow else 10)
        self.counts = _steps(max((batch.committed for batch in shown.batches), default=1) or 1, 4)
        self.rates = _steps(max((batch.records_per_s for batch in shown.batches), default=1) or 1, 3)
        self.waiting = _steps(max((count for _, count in shown.backlog), default=1) or 1, 3)
        self.end_s = max(shown.end_s, 0.001)

    def x(self, seconds: float) -> float:
        return round(self.left + (self.right - self.left) * min(max(seconds / self.end_s, 0), 1), 1)

    def y_count(self, count: float) -> float:
        return round(self.middle - (self.middle - self.top) * count / self.counts[-1], 1)

    def y_rate(self, rate: float) -> float:
        return round(self.bottom - (self.bottom - self.lower) * rate / self.rates[-1], 1)

    def y_waiting(self, count: float) -> float:
        return round(self.base - (self.base - self.last) * count / self.waiting[-1], 1)


def _steps(largest: float, wanted: int) -> list[float]:
    """Round numbers from 0 that reach ``largest`` in about ``wanted`` steps."""
    rough = largest / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    return [round(step * number, 10) for number in range(math.ceil(largest / step - 1e-9) + 1)]


def _short(value: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def draw(shown: Timeline, width: int, name: str) -> Markup:
    """The chart as an SVG element ``width`` units wide. ``name`` keeps its ids apart from those of another chart on the page."""
    frame = _Frame(shown, width)
    parts = [
        Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-labelledby="{}-title {}-text">').format(
            width, frame.height, name, name
        ),
        Markup('<title id="{}-title">Records committed over time, with phases and faults</title>').format(name),
        Markup('<desc id="{}-text">{}</desc>').format(name, describe(shown)),
        Markup(
            '<defs><pattern id="{}-hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            '<rect class="hatch-back" width="7" height="7"/><rect class="hatch" width="2" height="7"/></pattern></defs>'
        ).format(name),
        *_bands(shown, frame, name),
        *_axes(frame, shown),
        *_curves(shown, frame),
        *_moments(shown, frame),
        *_names(shown, frame),  # last, so that nothing crosses them
        Markup("</svg>"),
    ]
    return Markup("\n").join(parts)


def describe(shown: Timeline) -> str:
    """The chart in words."""
    last = shown.batches[-1].committed if shown.batches else 0
    said = [f"{last} records in {len(shown.batches)} micro-batches over {shown.end_s:.0f} s."]
    if shown.backlog:
        second, count = max(shown.backlog, key=lambda point: point[1])
        said.append(f"At most {count} records were waiting, at {second:.1f} s.")
    said += [f"Phase {phase.name} from {phase.start_s:.1f} to {phase.end_s:.1f} s." for phase in shown.phases]
    said += [f"{fault.name} from {fault.start_s:.1f} to {fault.end_s:.1f} s." for fault in shown.faults]
    said += [f"{mark.label} at {mark.at_s:.1f} s." for mark in shown.marks]
    return " ".join(said)


def _bands(shown: Timeline, frame: _Frame, name: str) -> Iterable[Markup]:
    for phase in shown.phases:
        x, wide = frame.x(phase.start_s), frame.x(phase.end_s) - frame.x(phase.start_s)
        yield Markup('<rect class="band {}" x="{}" y="{}" width="{}" height="{}"/>').format(phase.name, x, 22, wide, frame.base - 22)
        if wide > 7 * len(phase.name):
            yield _text("phase-name", x + 5, 34, phase.name, "start")
    for fault in shown.faults:
        x, wide = frame.x(fault.start_s), max(frame.x(fault.end_s) - frame.x(fault.start_s), 2)
        yield Markup('<rect x="{}" y="{}" width="{}" height="{}" fill="url(#{}-hatch)"><title>{}</title></rect>').format(
            x, frame.top, wide, frame.base - frame.top, name, f"{fault.name}: {fault.start_s:.1f} to {fault.end_s:.1f} s"
        )


def _axes(frame: _Frame, shown: Timeline) -> Iterable[Markup]:
    panels = [
        (frame.counts, frame.y_count, "records committed", 14),
        (frame.rates, frame.y_rate, "records/s per micro-batch", frame.lower - 10),
    ]
    if shown.backlog:
        panels.append((frame.waiting, frame.y_waiting, "backlog: records sent, not yet to be read", frame.last - 10))
    for steps, y, unit, top in panels:
        for value in steps:
            yield Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(frame.left, frame.right, y(value), y(value))
            yield _text("tick", frame.left - 6, y(value) + 4, _short(value), "end")
        yield _text("axis", 4, top, unit, "start")
    for second in frame.times:
        if second <= frame.end_s:
            x = frame.x(second)
            yield Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(x, x, frame.base, frame.base + 4)
            yield _text("tick", x, frame.height - 20, f"{second:g}", "middle")
    yield _text("axis", frame.right, frame.height - 4, f"seconds since {shown.began:%Y-%m-%d %H:%M:%S} UTC", "end")


def _curves(shown: Timeline, frame: _Frame) -> Iterable[Markup]:
    path = [f"M{frame.x(0)} {frame.y_count(0)}"]
    for batch in shown.batches:
        path.append(f"H{frame.x(batch.at_s)}V{frame.y_count(batch.committed)}")
    yield Markup('<path class="curve" d="{}"/>').format("".join([*path, f"H{frame.x(frame.end_s)}"]))
    for batch in shown.batches:
        x, y = frame.x(batch.at_s), frame.y_rate(batch.records_per_s)
        said = f"batch {batch.batch} of start {batch.start}: {batch.rows} records, {batch.records_per_s:.0f}/s, at {batch.at_s:.1f} s"
        yield Markup('<line class="stem" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(x, x, frame.bottom, y)
        yield Markup('<circle class="dot" cx="{}" cy="{}" r="2.5"><title>{}</title></circle>').format(x, y, said)
        yield Markup('<line class="batch" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(x, x, frame.ticks, frame.ticks + 8)
    if shown.backlog:
        points = "L".join(f"{frame.x(second)} {frame.y_waiting(count)}" for second, count in shown.backlog)
        yield Markup('<path class="backlog" d="M{}L{} {}L{} {}Z"/>').format(
            points, frame.x(frame.end_s), frame.base, frame.x(0), frame.base
        )


def _moments(shown: Timeline, frame: _Frame) -> Iterable[Markup]:
    signs = {"start": "M-5 7L0 -2L5 7Z", "exit": "M-4 -4L4 4M4 -4L-4 4", "failpoint": "M0 -5L5 0L0 5L-5 0Z"}
    for mark in shown.marks:
        x = frame.x(mark.at_s)
        yield Markup('<line class="moment {}" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(mark.kind, x, x, frame.top, frame.base)
        yield Markup('<path class="sign {}" transform="translate({} {})" d="{}"><title>{}</title></path>').format(
            mark.kind, x, frame.signs, signs[mark.kind], f"{mark.label} at {mark.at_s:.1f} s"
        )


def _names(shown: Timeline, frame: _Frame) -> Iterable[Markup]:
    for row, fault in enumerate(shown.faults[:8]):
        x = frame.x(fault.start_s)
        room_right = x + 6.2 * len(fault.name) + 8 < frame.right
        yield _text("fault-name", x + 4 if room_right else x - 4, frame.top + 14 + 14 * row, fault.name, "start" if room_right else "end")


def _text(kind: str, x: float, y: float, words: str, anchor: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(kind, round(x, 1), round(y, 1), anchor, escape(words))
