"""What happened in a run, second by second: the rate of its output, what was waiting, its micro-batches, and what was broken meanwhile.

Read from the journal, the progress and the records; :mod:`streamproof.report.charts` describes it as a chart, the report prints it as a
table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from streamproof.evidence.journal import (
    DriverExited,
    DriverStarted,
    Event,
    FailpointFired,
    InjectionHealed,
    InjectionInjected,
    InjectionStarted,
    PhaseBegan,
)
from streamproof.evidence.progress import reached
from streamproof.verdict.timing.recovery import Flow

POINTS = 400
_SHOWN = (PhaseBegan, DriverStarted, DriverExited, InjectionStarted, InjectionInjected, InjectionHealed, FailpointFired)
BINS = 100


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
    """One micro-batch, from its start to its commit. ``committed`` counts the records that the job has passed over by then."""

    start_s: float
    at_s: float
    committed: int
    records_per_s: float
    batch: int
    start: int
    rows: int


@dataclass(frozen=True)
class Timeline:
    """``output`` is the records per second that came into a reader's sight, in stretches of ``bin_s``; ``backlog`` how many records were
    waiting at some moments in order. Both are empty where they are not known."""

    began: datetime
    end_s: float
    phases: tuple[Span, ...]
    faults: tuple[Span, ...]
    marks: tuple[Mark, ...]
    batches: tuple[Batch, ...]
    bin_s: float = 0.0
    output: tuple[tuple[float, float], ...] = ()
    backlog: tuple[tuple[float, int], ...] = ()


def timeline(events: Sequence[Event], progress: Sequence[dict[str, Any]], flow: Flow | None = None) -> Timeline | None:
    """The timeline of a run, from its journal, its progress and its records. None when the first two name no moment."""
    moments = [_moment(event.at) for event in events if isinstance(event, _SHOWN)]
    commits = [_moment(line["committed_at"]) for line in progress]
    if not moments and not commits:
        return None
    began = min(moments + commits)
    end_s = max((moment - began).total_seconds() for moment in moments + commits) or 1.0
    bin_s = _bin(end_s)
    return Timeline(
        began,
        end_s,
        tuple(_phases(events, began, end_s)),
        tuple(_faults(events, began, end_s)),
        tuple(_marks(events, began)),
        tuple(_batches(progress, began)),
        bin_s,
        tuple(_output(flow, began, end_s, bin_s)) if flow is not None else (),
        tuple(_backlog(flow, began, end_s)) if flow is not None else (),
    )


def _moment(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp).astimezone(UTC)


def _phases(events: Sequence[Event], began: datetime, end_s: float) -> Iterable[Span]:
    starts = [(event.phase, (_moment(event.at) - began).total_seconds()) for event in events if isinstance(event, PhaseBegan)]
    for number, (phase, start_s) in enumerate(starts):
        if phase != "done":
            yield Span(phase, start_s, starts[number + 1][1] if number + 1 < len(starts) else end_s)


def _faults(events: Sequence[Event], began: datetime, end_s: float) -> Iterable[Span]:
    injected: dict[str, float] = {}
    healed: dict[str, float] = {}
    for event in events:
        if isinstance(event, InjectionStarted | InjectionInjected | InjectionHealed):
            into = healed if isinstance(event, InjectionHealed) else injected
            into[event.injection] = (_moment(event.at) - began).total_seconds()
    for name, start_s in injected.items():
        yield Span(name, start_s, max(start_s, healed.get(name, end_s)))


def _marks(events: Sequence[Event], began: datetime) -> Iterable[Mark]:
    for event in events:
        at_s = (_moment(event.at) - began).total_seconds()
        if isinstance(event, DriverStarted):
            yield Mark("start", at_s, f"driver start {event.start}")
        elif isinstance(event, DriverExited):
            yield Mark("exit", at_s, f"driver {event.start} exited ({event.reason})")
        elif isinstance(event, FailpointFired):
            yield Mark("failpoint", at_s, f"{event.failpoint} fired in batch {event.batch}")


def _batches(progress: Sequence[dict[str, Any]], began: datetime) -> Iterable[Batch]:
    until: dict[str, int] = {}  # the run's topics are its own: they begin at offset 0
    for line in sorted(progress, key=lambda line: str(line["committed_at"])):
        for partition, offset in reached(line).items():
            until[partition] = max(until.get(partition, 0), offset)
        at_s = (_moment(line["committed_at"]) - began).total_seconds()
        start_s = (_moment(line["started_at"]) - began).total_seconds()
        seconds = max(at_s - start_s, 0.001)
        yield Batch(start_s, at_s, sum(until.values()), line["rows"] / seconds, line["batch"], line["start"], line["rows"])


def _bin(end_s: float) -> float:
    """The shortest round stretch of time of which the run has no more than ``BINS``."""
    wanted = end_s / BINS
    power = 10.0 ** np.ceil(np.log10(wanted) - 1)
    return round(float(next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= wanted * 0.999)), 10)


def _output(flow: Flow, began: datetime, end_s: float, bin_s: float) -> Iterable[tuple[float, float]]:
    seconds = (flow.visible - round(began.timestamp() * 1000)) / 1000
    edges = np.arange(int(np.ceil(end_s / bin_s)) + 1) * bin_s
    counts, _ = np.histogram(seconds, edges, weights=flow.records)
    return zip(np.round(edges[:-1], 3).tolist(), np.round(counts / bin_s, 1).tolist(), strict=True)


def _backlog(flow: Flow, began: datetime, end_s: float) -> Iterable[tuple[float, int]]:
    seconds = np.linspace(0, end_s, POINTS)
    waiting = flow.backlog(np.round(began.timestamp() * 1000 + seconds * 1000).astype(np.int64))
    return zip(np.round(seconds, 3).tolist(), waiting.tolist(), strict=True)


def describe(shown: Timeline) -> str:
    """The timeline in words."""
    last = shown.batches[-1].committed if shown.batches else 0
    sentences = [f"{last} records in {len(shown.batches)} micro-batches over {shown.end_s:.0f} s."]
    if shown.output:
        second, rate = max(shown.output, key=lambda point: point[1])
        sentences.append(f"The output reached {rate:.0f} records a second, at {second:.1f} s.")
    if shown.backlog:
        second, count = max(shown.backlog, key=lambda point: point[1])
        sentences.append(f"At most {count} records were waiting, at {second:.1f} s.")
    sentences += [f"Phase {phase.name} from {phase.start_s:.1f} to {phase.end_s:.1f} s." for phase in shown.phases]
    sentences += [f"{fault.name} from {fault.start_s:.1f} to {fault.end_s:.1f} s." for fault in shown.faults]
    sentences += [f"{mark.label} at {mark.at_s:.1f} s." for mark in shown.marks]
    return " ".join(sentences)
