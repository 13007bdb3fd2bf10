"""Stateful jobs: the reference model of a job, and the judgement of its results against a recomputation.

The output of an aggregate or a join cannot be compared with what was sent record by record. It is compared with a recomputation in batch
from the acknowledged records. The evidence says which micro-batch read which records (``batches.jsonl``). From that follows the watermark
(:mod:`streamproof.verdict.stateful.watermark`), which decides what is late and what is due. The watermark is recomputed from the *declared*
delay: a job whose own delay is smaller drops events that it promised to count, and is caught. Records that were lost, doubled or mixed up
between the source and the output show as the anomalies of :mod:`streamproof.verdict.stateful.results`.

Results that are not due when the job ends are not required: windows that the watermark has not passed were never emitted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from streamproof.evidence.batches import Batch, read_batches, reading
from streamproof.evidence.events import Inputs, read_inputs
from streamproof.evidence.files import milliseconds
from streamproof.evidence.folder import RunFolder, read_json_lines
from streamproof.evidence.histories import Delivered, Sent, read_sent, read_sent_at
from streamproof.evidence.payloads import Payloads
from streamproof.verdict.checks.matching import Finding
from streamproof.verdict.stateful import deduplication, joins, sessions, totals, windows
from streamproof.verdict.stateful.results import NOTHING, Expected, Results, compare, dropped
from streamproof.verdict.stateful.watermark import Marks, moment, watermarks
from streamproof.verdict.timing.recovery import Flow, Stamps, flow

EXPLAINED, SHOWN = 200, 4
Parsed = tuple[tuple[int, ...], tuple[int, ...]]
Mark = dict[str, int]


class ReferenceModel(Protocol):
    """What a stateful job must deliver. ``about`` and ``values`` name the columns of its results."""

    @property
    def about(self) -> tuple[str, ...]: ...

    @property
    def values(self) -> tuple[str, ...]: ...

    @property
    def delays_ms(self) -> tuple[int, ...]:
        """The declared delay of each stream."""

    def expected(self, inputs: Inputs, marks: Marks, delivered: Results) -> tuple[Expected, Results]:
        """The results that may be delivered, and those that were, with the same names."""

    def parse(self, result: dict[str, Any], keys: Mark) -> Parsed:
        """One delivered result. Raises KeyError, TypeError or ValueError for anything else."""

    def name(self, about: np.ndarray, keys: Sequence[str]) -> str:
        """What a result is about, in words."""

    def records(self, about: np.ndarray, inputs: Inputs) -> np.ndarray:
        """The rows of ``inputs`` that a result is made of."""


@dataclass(frozen=True)
class Windows:
    """Windows of event time, by key. See :mod:`streamproof.verdict.stateful.windows`."""

    length_ms: int
    slide_ms: int
    delay_ms: int
    about = ("key", "begin")
    values = windows.VALUES

    @property
    def delays_ms(self) -> tuple[int, ...]:
        return (self.delay_ms,)

    def expected(self, inputs: Inputs, marks: Marks, delivered: Results) -> tuple[Expected, Results]:
        return windows.windows(inputs, marks, self.length_ms, self.slide_ms), delivered

    def parse(self, result: dict[str, Any], keys: Mark) -> Parsed:
        return (_key(result, keys), int(result["begin"])), (int(result["count"]), int(result["sum"]))

    def name(self, about: np.ndarray, keys: Sequence[str]) -> str:
        return f"the window of {keys[about[0]]} from {moment(int(about[1]))}"

    def records(self, about: np.ndarray, inputs: Inputs) -> np.ndarray:
        return np.flatnonzero((inputs.key == about[0]) & (inputs.at >= about[1]) & (inputs.at < about[1] + self.length_ms))


@dataclass(frozen=True)
class Sessions:
    """Session windows, by key. See :mod:`streamproof.verdict.stateful.sessions`."""

    gap_ms: int
    delay_ms: int
    about = ("key", "begin")
    values = sessions.VALUES

    @property
    def delays_ms(self) -> tuple[int, ...]:
        return (self.delay_ms,)

    def expected(self, inputs: Inputs, marks: Marks, delivered: Results) -> tuple[Expected, Results]:
        return sessions.sessions(inputs, marks, self.gap_ms, delivered), delivered

    def parse(self, result: dict[str, Any], keys: Mark) -> Parsed:
        return (_key(result, keys), int(result["begin"])), (int(result["end"]), int(result["count"]), int(result["sum"]))

    def name(self, about: np.ndarray, keys: Sequence[str]) -> str:
        return f"the session of {keys[about[0]]} from {moment(int(about[1]))}"

    def records(self, about: np.ndarray, inputs: Inputs) -> np.ndarray:
        return np.flatnonzero((inputs.key == about[0]) & (inputs.at == about[1]))


@dataclass(frozen=True)
class Join:
    """A join of two streams by key and event time. See :mod:`streamproof.verdict.stateful.joins`."""

    delay_ms: int
    outer: bool = True
    before_ms: int = 0
    after_ms: int = 0
    about = ("left producer", "left sequence", "right producer", "right sequence")
    values = joins.VALUES

    @property
    def delays_ms(self) -> tuple[int, ...]:
        return (self.delay_ms, self.delay_ms)

    def expected(self, inputs: Inputs, marks: Marks, delivered: Results) -> tuple[Expected, Results]:
        joined = joins.joined(inputs, marks, outer=self.outer, before_ms=self.before_ms, after_ms=self.after_ms)
        return joined, delivered

    def parse(self, result: dict[str, Any], keys: Mark) -> Parsed:
        right = result.get("right")
        pair = (*_identity(result["left"]), *((-1, -1) if right is None else _identity(right)))
        value = result.get("right_value")
        return pair, (int(result["left_value"]), NOTHING if value is None else int(value))

    def name(self, about: np.ndarray, keys: Sequence[str]) -> str:
        partner = "without a partner" if about[2] < 0 else f"joined with record {about[2]}/{about[3]}"
        return f"record {about[0]}/{about[1]} {partner}"

    def records(self, about: np.ndarray, inputs: Inputs) -> np.ndarray:
        return np.flatnonzero(_is(inputs, about[0], about[1]) | _is(inputs, about[2], about[3]))


@dataclass(frozen=True)
class Deduplication:
    """One of the events with each key, within the watermark. See :mod:`streamproof.verdict.stateful.deduplication`."""

    delay_ms: int
    about = ("key", "turn")
    values: tuple[str, ...] = ()

    @property
    def delays_ms(self) -> tuple[int, ...]:
        return (self.delay_ms,)

    def expected(self, inputs: Inputs, marks: Marks, delivered: Results) -> tuple[Expected, Results]:
        passed = deduplication.deduplicated(inputs, marks, self.delay_ms, delivered)
        return passed.expected, passed.delivered

    def parse(self, result: dict[str, Any], keys: Mark) -> Parsed:
        return _identity(result["id"]), ()

    def name(self, about: np.ndarray, keys: Sequence[str]) -> str:
        return f"passage {about[1]} of {keys[about[0]]}" if about[0] >= 0 else "a record that should not have passed"

    def records(self, about: np.ndarray, inputs: Inputs) -> np.ndarray:
        return np.flatnonzero(inputs.key == about[0])


@dataclass(frozen=True)
class Totals:
    """Running totals, by key. See :mod:`streamproof.verdict.stateful.totals`."""

    about = ("key", "count")
    values = totals.VALUES
    delays_ms: tuple[int, ...] = (0,)

    def expected(self, inputs: Inputs, marks: Marks, delivered: Results) -> tuple[Expected, Results]:
        return totals.totals(inputs, len(marks.low)), delivered

    def parse(self, result: dict[str, Any], keys: Mark) -> Parsed:
        return (_key(result, keys), int(result["count"])), (int(result["sum"]),)

    def name(self, about: np.ndarray, keys: Sequence[str]) -> str:
        return f"the total of {keys[about[0]]} after {about[1]} records"

    def records(self, about: np.ndarray, inputs: Inputs) -> np.ndarray:
        return np.flatnonzero(inputs.key == about[0])


def _key(result: dict[str, Any], keys: Mark) -> int:
    """The number of a result's key; one that no record has is taken in."""
    return keys.setdefault(str(result["key"]), len(keys))


def _identity(text: Any) -> tuple[int, int]:
    producer, _, sequence = str(text).partition("-")
    return int(producer, 16), int(sequence, 16)


def _is(inputs: Inputs, producer: int, sequence: int) -> np.ndarray:
    return np.asarray((inputs.producer == producer) & (inputs.sequence == sequence))


# --- the judgement ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """``findings`` name every wrong result; ``figures`` are what ``verdict.json`` says under ``results``."""

    findings: tuple[Finding, ...]
    figures: dict[str, Any]


def read_results(model: ReferenceModel, payloads: Payloads, keys: Mark) -> Results:
    """The delivered results as columns. ``keys`` numbers the keys that the records have, and takes in any other."""
    about, values, readable = [], [], []
    nothing = (0,) * len(model.about), (0,) * len(model.values)
    for value in payloads.values:
        try:
            parsed = model.parse(json.loads(value or b""), keys)
            np.array((*parsed[0], *parsed[1]), np.int64)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            parsed = nothing
            readable.append(False)
        else:
            readable.append(True)
        about.append(parsed[0])
        values.append(parsed[1])
    rows = len(about)
    return Results(
        np.array(about, np.int64).reshape(rows, len(nothing[0])),
        np.array(values, np.int64).reshape(rows, len(nothing[1])),
        payloads.delivered.start,
        payloads.delivered.batch,
        np.array(readable, bool),
    )


def read_flow(folder: RunFolder) -> Flow:
    """The flow of a job that delivers results. Raises EvidenceError naming the file when its evidence is missing or cannot be read."""
    batches = read_batches(folder.batches) if folder.batches.exists() else committed(list(read_json_lines(folder.progress)))
    return flow_of_batches(read_sent(folder), read_sent_at(folder), batches)


def committed(progress: Sequence[dict[str, Any]]) -> tuple[Batch, ...]:
    """The micro-batches of a job that says nothing of watermarks, by what it committed."""
    return tuple(Batch(line["batch"], line["start"], line["until"], None, None, line["committed_at"]) for line in progress)


def flow_of_batches(sent: Sent, sent_at: np.ndarray, batches: Sequence[Batch]) -> Flow:
    """The flow of a stateful job: a record is output as the micro-batch is committed that read it."""
    ends = np.array([milliseconds(batch.committed_at) for batch in batches], np.int64)
    rows = np.flatnonzero(sent.acked) if len(batches) else np.zeros(0, np.int64)
    at = ends[reading(batches, sent.partition[rows], sent.offset[rows])] if len(batches) else ends
    unknown = np.full(len(rows), -1, np.int64)
    read = Delivered(
        producer=sent.producer[rows],
        sequence=sent.sequence[rows],
        crc=sent.crc[rows],
        partition=sent.partition[rows],
        offset=sent.offset[rows],
        identified=np.ones(len(rows), bool),
        batch=unknown,
        attempt=unknown,
        start=unknown,
    )
    return flow(sent, sent_at, read, at, np.zeros(0, np.int64), Stamps.VISIBLE)


def judge(folder: RunFolder, model: ReferenceModel, sent: Sent, payloads: Payloads) -> Judged:
    """Compare what was delivered with what is computed again. Raises EvidenceError when the evidence cannot be read."""
    batches = read_batches(folder.batches)
    inputs = read_inputs(folder.events, sent, batches)
    return judge_results(model, inputs, batches, payloads)


def judge_results(model: ReferenceModel, inputs: Inputs, batches: Sequence[Batch], payloads: Payloads) -> Judged:
    """The same of columns."""
    keys = {key: number for number, key in enumerate(inputs.keys)}
    delivered = read_results(model, payloads, keys)
    if not batches:
        return Judged((), _figures(None, delivered, batches))
    marks = watermarks(inputs, batches, model.delays_ms)
    expected, delivered = model.expected(inputs, marks, delivered)
    names, readers = list(keys), _Readers(model, inputs, batches)
    findings = compare(expected, delivered, model.values, lambda about: model.name(about, names), readers)
    return Judged((*findings, *dropped(expected, batches, marks)), _figures(expected, delivered, batches))


class _Readers:
    """Says which micro-batches read the records of a result, of the first ``EXPLAINED`` that are asked for."""

    def __init__(self, model: ReferenceModel, inputs: Inputs, batches: Sequence[Batch]) -> None:
        self._model, self._inputs, self._batches, self._left = model, inputs, batches, EXPLAINED

    def __call__(self, about: np.ndarray) -> str:
        if self._left == 0:
            return ""
        self._left -= 1
        rows = self._model.records(about, self._inputs)
        read = [self._batches[place] for place in np.unique(self._inputs.batch[rows]) if place >= 0]
        if not read:
            return "no record of it was read"
        named = [f"batch {batch.number} of start {batch.start}" for batch in read]
        shown = " and ".join(named[:SHOWN]) + (f" and {len(named) - SHOWN} more" if len(named) > SHOWN else "")
        return f"its {len(rows)} records were read by {shown}"


def _figures(expected: Expected | None, delivered: Results, batches: Sequence[Batch]) -> dict[str, Any]:
    reported = [batch.dropped for batch in batches if batch.dropped is not None]
    return {
        "due": 0 if expected is None else int(expected.certain.sum()),
        "delivered": len(delivered),
        "late_records": 0 if expected is None else expected.late_records,
        "late_rows": [0, 0] if expected is None else expected.late.sum(axis=0).tolist(),
        "dropped_rows": sum(reported),
        "batches": len(batches),
        "batches_unreported": len(batches) - len(reported),
    }
