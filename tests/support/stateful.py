"""Stateful jobs for tests: events in micro-batches, and what such a job delivers, by a reference that walks event by event.

The reference keeps dictionaries as a stream processor keeps its state, and knows nothing of the checkers. What it says of Spark is held
against Spark in ``tests/integration/test_stateful.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamproof.evidence import manifest
from streamproof.evidence.batches import Batch
from streamproof.evidence.events import EVENTS, Inputs
from streamproof.evidence.folder import RunFolder, write_atomically
from streamproof.evidence.histories import DELIVERED, Delivered, SentRow, write_delivered, write_sent, write_table
from streamproof.evidence.outcome import Outcome
from streamproof.evidence.payloads import PAYLOADS, Payloads, write_payloads
from streamproof.verdict.stateful.reference import Deduplication, Join, Sessions, Totals, Windows

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
Model = Windows | Sessions | Join | Deduplication | Totals
Result = dict[str, Any]


@dataclass(frozen=True)
class Event:
    at: int
    key: str = "a"
    value: int = 1
    stream: int = 0
    sure: bool = True
    """Whether its send has an outcome that is known; one that is not may be in a batch all the same, or in none."""


@dataclass
class Output:
    """What a job delivered, and the late rows that it dropped in each batch."""

    results: list[Result] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)


@dataclass
class Story:
    """``batches`` hold the events that each read, ``starts`` who carried each out, ``unread`` are events that nobody read."""

    batches: list[list[Event]]
    starts: list[int] | None = None
    unread: list[Event] = field(default_factory=list)

    def start(self, place: int) -> int:
        return 1 if self.starts is None else self.starts[place]

    def events(self) -> list[tuple[int, Event]]:
        read = [(place, event) for place, batch in enumerate(self.batches) for event in batch]
        return read + [(-1, event) for event in self.unread]

    def inputs(self) -> Inputs:
        """The columns; the sequence of an event is its place in :meth:`events`."""
        events = self.events()
        keys = sorted({event.key for _, event in events})
        return Inputs(
            producer=np.zeros(len(events), np.int64),
            sequence=np.arange(len(events)),
            stream=_ints([event.stream for _, event in events]),
            at=_ints([event.at for _, event in events]),
            key=_ints([keys.index(event.key) for _, event in events]),
            value=_ints([event.value for _, event in events]),
            batch=_ints([place if event.sure else -1 for place, event in events]),
            keys=tuple(keys),
        )

    def ran(self, output: Output) -> tuple[Batch, ...]:
        return tuple(
            Batch(place, self.start(place), {"0": place}, None, dropped, "2026-01-01T00:00:00+00:00")
            for place, dropped in enumerate(output.dropped)
        )


def payloads(results: Sequence[Result | bytes]) -> Payloads:
    count = len(results)
    nobody, zero = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    delivered = Delivered(nobody, nobody, nobody, zero, np.arange(count), np.zeros(count, bool), zero, zero, np.ones(count, np.int64))
    return Payloads(
        delivered, zero, [None] * count, [found if isinstance(found, bytes) else json.dumps(found).encode() for found in results]
    )


def _ints(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


def job(story: Story, model: Model) -> Output:
    """What the job delivers that reads these batches."""
    return _JOBS[type(model)](story, model)


class _Mark:
    """The watermark: :meth:`begin` before each batch, :meth:`see` each of its events."""

    def __init__(self, delays: Sequence[int]) -> None:
        self._delays, self._seen = delays, dict.fromkeys(range(len(delays)), 0)
        self.now = self.late = 0
        self._next, self._start = 0, 0

    def begin(self, start: int) -> None:
        self.late, self.now = self.now, self._next
        if start != self._start:
            self._seen, self._start = dict.fromkeys(self._seen, 0), start

    def see(self, event: Event) -> None:
        self._seen[event.stream] = max(self._seen[event.stream], event.at - self._delays[event.stream])

    def end(self) -> None:
        self._next = max(self._next, min(self._seen.values()))


def _windows(story: Story, model: Windows) -> Output:
    output, mark, state = Output(), _Mark(model.delays_ms), {}
    for place, batch in enumerate(story.batches):
        mark.begin(story.start(place))
        late = set()
        for event in batch:
            mark.see(event)
            last = event.at - event.at % model.slide_ms
            for begin in range(last, event.at - model.length_ms, -model.slide_ms):
                if begin + model.length_ms <= mark.late:
                    late.add((event.key, begin))
                    continue
                count, total = state.get((event.key, begin), (0, 0))
                state[event.key, begin] = count + 1, total + event.value
        output.dropped.append(len(late))
        for key, begin in [name for name in state if name[1] + model.length_ms <= mark.now]:
            count, total = state.pop((key, begin))
            output.results.append({"key": key, "begin": begin, "count": count, "sum": total})
        mark.end()
    return output


def _sessions(story: Story, model: Sessions) -> Output:
    output, mark, state = Output(), _Mark(model.delays_ms), []
    for place, batch in enumerate(story.batches):
        mark.begin(story.start(place))
        late = set()
        for event in batch:
            mark.see(event)
            if event.at + model.gap_ms <= mark.late:
                late.add((event.key, event.at))
            else:
                state.append((event.key, event.at, event.at + model.gap_ms, 1, event.value))
        output.dropped.append(len(late))
        merged: list[tuple[str, int, int, int, int]] = []
        for row in sorted(state):
            if merged and merged[-1][0] == row[0] and row[1] <= merged[-1][2]:
                key, begin, end, count, total = merged[-1]
                merged[-1] = key, begin, max(end, row[2]), count + row[3], total + row[4]
            else:
                merged.append(row)
        out = [row for row in merged if row[2] <= mark.now]
        state = [row for row in merged if row[2] > mark.now]
        output.results += [dict(zip(("key", "begin", "end", "count", "sum"), row, strict=True)) for row in out]
        mark.end()
    return output


def _join(story: Story, model: Join) -> Output:
    output, mark = Output(), _Mark(model.delays_ms)
    held: list[tuple[int, Event]] = []
    waiting: dict[int, Event] = {}
    numbers = iter(range(10**6))
    for place, batch in enumerate(story.batches):
        mark.begin(story.start(place))
        late = 0
        for event in batch:
            number = next(numbers)
            mark.see(event)
            if event.at <= mark.late:
                late += 1
                continue
            for other_number, other in held:
                (left_number, left), (right_number, right) = sorted(((number, event), (other_number, other)), key=lambda one: one[1].stream)
                if (left.stream, right.stream) != (0, 1) or left.key != right.key:
                    continue
                if left.at - model.before_ms <= right.at <= left.at + model.after_ms:
                    waiting.pop(left_number, None)
                    output.results.append(_pair(left_number, left, right_number, right))
            held.append((number, event))
            if event.stream == 0 and not any(name == f"0-{number:x}" for name in (result["left"] for result in output.results)):
                waiting[number] = event
        output.dropped.append(late)
        for number, event in list(waiting.items()):
            if event.at + model.after_ms + bool(model.before_ms or model.after_ms) <= mark.now:
                del waiting[number]
                if model.outer:
                    output.results.append({"left": f"0-{number:x}", "left_value": event.value})
        mark.end()
    return output


def _pair(left_number: int, left: Event, right_number: int, right: Event) -> Result:
    return {"left": f"0-{left_number:x}", "right": f"0-{right_number:x}", "left_value": left.value, "right_value": right.value}


def _deduplication(story: Story, model: Deduplication) -> Output:
    output, mark, until = Output(), _Mark(model.delays_ms), {}
    numbers = iter(range(10**6))
    for place, batch in enumerate(story.batches):
        mark.begin(story.start(place))
        late = 0
        for event in batch:
            number = next(numbers)
            mark.see(event)
            if event.at <= mark.late:
                late += 1
            elif event.key not in until:
                until[event.key] = event.at + model.delay_ms
                output.results.append({"id": f"0-{number:x}"})
        output.dropped.append(late)
        until = {key: at for key, at in until.items() if at > mark.now}
        mark.end()
    return output


def _totals(story: Story, model: Totals) -> Output:
    output, state = Output(), {}
    for batch in story.batches:
        for event in batch:
            count, total = state.get(event.key, (0, 0))
            state[event.key] = count + 1, total + event.value
        output.dropped.append(0)
        for key in {event.key for event in batch}:
            output.results.append({"key": key, "count": state[key][0], "sum": state[key][1]})
    return output


_JOBS: dict[type, Callable[[Story, Any], Output]] = {
    Windows: _windows,
    Sessions: _sessions,
    Join: _join,
    Deduplication: _deduplication,
    Totals: _totals,
}


def write(path: Path, story: Story, output: Output) -> RunFolder:
    """The folder of a run that read these batches and delivered that: what a verdict needs, and no fault."""
    folder = RunFolder.create(path)
    folder.payloads.mkdir()
    events = story.events()
    columns = {name: [getattr(event, name) for _, event in events] for name in ("stream", "at", "key", "value")}
    write_table(folder.events, pa.table({"sequence": list(range(len(events))), **columns}, schema=EVENTS))
    outcomes = [Outcome.ACKED if event.sure else Outcome.INDETERMINATE for _, event in events]
    rows = [
        SentRow(0, number, 0, number if outcome is Outcome.ACKED else None, "k", number, _sent_at(place), outcome)
        for number, (outcome, (place, _)) in enumerate(zip(outcomes, events, strict=True))
    ]
    write_sent(folder.sent / "00000.parquet", rows)
    ends, lines, progress = 0, [], []
    for place, batch in enumerate(story.batches):
        begin, ends = ends, ends + len(batch)
        known = {"batch": place, "start": story.start(place), "until": {"0": ends}, "committed_at": _at(place)}
        lines.append({**known, "watermark_ms": None, "dropped": output.dropped[place]})
        if batch:
            progress.append({**known, "rows": len(batch), "from": {"0": begin}, "started_at": known["committed_at"]})
    for target, found in ((folder.batches, lines), (folder.progress, progress), (folder.journal.path, _phases(len(story.batches)))):
        target.write_text("".join(json.dumps(line) + "\n" for line in found))
    values = payloads(output.results).values
    shown = [(0, number, 0, 0, 1, BEGUN, b"k", value) for number, value in enumerate(values)]
    write_payloads(folder.payloads, 0, {name: [row[at] for row in shown] for at, name in enumerate(PAYLOADS.names)})
    nothing: list[Any] = [None] * len(values)
    written = {"partition": [0] * len(values), "offset": list(range(len(values))), "delivered_at": [BEGUN] * len(values)}
    write_delivered(folder.delivered / "00000.parquet", {name: written.get(name, nothing) for name in DELIVERED.names})
    write_atomically(folder.drain, json.dumps({"complete": True, "reason": None, "records": len(values)}))
    write_atomically(folder.source, json.dumps({"end_offsets": {"0": len(events)}}))
    manifest.write(folder)
    return folder


def _sent_at(place: int) -> datetime:
    """A moment before the batch that read it was committed, in the same phase."""
    return BEGUN + timedelta(seconds=place + 0.9)


def _at(place: int) -> str:
    return (BEGUN + timedelta(seconds=place + 1)).isoformat(timespec="milliseconds")


def _phases(batches: int) -> list[dict[str, Any]]:
    """Three phases, of which each has a batch if there are as many."""
    at = [-0.5, 0.5, 1.5, batches + 1.0]
    stamps = [(BEGUN + timedelta(seconds=1 + second)).isoformat(timespec="milliseconds") for second in at]
    phases = zip(stamps, ("steady", "impact", "recovery", "done"), strict=True)
    return [{"at": stamp, "event": "phase", "phase": phase} for stamp, phase in phases]
