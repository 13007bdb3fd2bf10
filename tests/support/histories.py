"""Histories for tests: a clean one, made to be damaged in one place, and a run's folder that holds it."""

from __future__ import annotations

import json
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from streamproof.evidence import histories as history
from streamproof.evidence import manifest
from streamproof.evidence.folder import RunFolder, write_atomically
from streamproof.evidence.journal import EVENTS, Event
from streamproof.evidence.outcome import Outcome
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.matching import Finding
from streamproof.verdict.checks.records import Reconciliation, check
from streamproof.verdict.decide import Decision, RunOutcome
from streamproof.verdict.guarantee import Guarantee
from streamproof.verdict.judge import RunSpec
from streamproof.verdict.verdict import Account, Verdict

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
SENT_S = 9.0
Id = tuple[int, int]


def crc_of(producer: int, sequence: int) -> int:
    return zlib.crc32(b"%d/%d" % (producer, sequence))


@dataclass(frozen=True)
class Record:
    producer: int
    sequence: int
    partition: int
    offset: int | None
    outcome: Outcome = Outcome.ACKED

    @property
    def id(self) -> Id:
        return self.producer, self.sequence

    @property
    def crc(self) -> int:
        return crc_of(self.producer, self.sequence)


@dataclass(frozen=True)
class Copy:
    producer: int | None
    sequence: int | None
    crc: int | None
    partition: int
    offset: int
    batch: int | None = 0
    attempt: int | None = 0
    start: int | None = 1

    @property
    def id(self) -> tuple[int | None, int | None]:
        return self.producer, self.sequence


@dataclass
class Histories:
    """What was sent and what was delivered, as rows. ``settle``, ``drop`` and ``double`` damage it in place."""

    sent: list[Record] = field(default_factory=list)
    delivered: list[Copy] = field(default_factory=list)

    def settle(self, ids: Iterable[Id], outcome: Outcome) -> None:
        """Give these sends another outcome."""
        wanted = set(ids)
        self.sent = [
            replace(row, outcome=outcome, offset=row.offset if outcome is Outcome.ACKED else None) if row.id in wanted else row
            for row in self.sent
        ]

    def drop(self, ids: Iterable[Id]) -> None:
        """Take every copy of these away."""
        wanted = set(ids)
        self.delivered = [copy for copy in self.delivered if copy.id not in wanted]

    def double(self, ids: Iterable[Id], times: int = 1) -> None:
        """Deliver these again, ``times`` times."""
        wanted = set(ids)
        end = max((copy.offset for copy in self.delivered), default=0)
        again = [copy for copy in self.delivered if copy.id in wanted] * times
        self.delivered += [replace(copy, offset=end + number) for number, copy in enumerate(again, 1)]

    def change(self, wanted: Id, **fields: Any) -> None:
        """Change fields of every copy of one record."""
        self.delivered = [replace(copy, **fields) if copy.id == wanted else copy for copy in self.delivered]

    def shuffle(self, seed: int) -> None:
        rng = random.Random(seed)
        rng.shuffle(self.sent)
        rng.shuffle(self.delivered)

    def columns(self) -> tuple[history.Sent, history.Delivered]:
        sent, delivered = self.sent, self.delivered
        return (
            history.Sent(
                _ints(row.producer for row in sent),
                _ints(row.sequence for row in sent),
                _ints(row.partition for row in sent),
                _ints(row.offset for row in sent),
                _ints(row.crc for row in sent),
                np.array([row.outcome is Outcome.ACKED for row in sent], bool),
                np.array([row.outcome is Outcome.REJECTED for row in sent], bool),
            ),
            history.Delivered(
                **{name: _ints(getattr(copy, name) for copy in delivered) for name in ("producer", "sequence", "crc")},
                **{name: _ints(getattr(copy, name) for copy in delivered) for name in ("partition", "offset", "batch", "attempt", "start")},
                identified=np.array([copy.sequence is not None for copy in delivered], bool),
            ),
        )

    def check(self) -> Reconciliation:
        return check(*self.columns())

    def anomalies(self) -> dict[Anomaly, list[tuple[int | None, int | None]]]:
        """The anomalous records by anomaly, sorted; an anomaly of which there is none is left out."""
        return named(self.check().findings)

    def write(self, folder: RunFolder, delivered_at: Callable[[int], datetime] | None = None) -> None:
        """As ``sent/00000.parquet`` and ``delivered/00000.parquet``. ``delivered_at`` is asked for the n-th copy's time: n ms after the
        begin when absent. Records are sent one after the other until ``SENT_S``."""
        times = sent_times(len(self.sent))
        rows = [
            history.SentRow(row.producer, row.sequence, row.partition, row.offset, f"k{row.sequence}", row.crc, sent_at, row.outcome)
            for row, sent_at in zip(self.sent, times, strict=True)
        ]
        history.write_sent(folder.sent / "00000.parquet", rows)
        columns: dict[str, list[Any]] = {
            name: [getattr(copy, name) for copy in self.delivered] for name in history.DELIVERED.names if name != "delivered_at"
        }
        stamp = delivered_at or (lambda number: BEGUN + timedelta(milliseconds=number))
        columns["delivered_at"] = [stamp(number) for number in range(len(self.delivered))]
        history.write_delivered(folder.delivered / "00000.parquet", columns)


def sent_times(count: int) -> list[datetime]:
    """When so many records are sent."""
    return [BEGUN + timedelta(seconds=1 + number * SENT_S / max(count, 1)) for number in range(count)]


def named(findings: Iterable[Finding]) -> dict[Anomaly, list[tuple[int | None, int | None]]]:
    found: dict[Anomaly, list[tuple[int | None, int | None]]] = {}
    for finding in findings:
        found.setdefault(finding.anomaly, []).append((finding.producer, finding.sequence))
    return {anomaly: sorted(ids, key=str) for anomaly, ids in found.items()}


def clean(*counts: int, partitions: int = 3) -> Histories:
    """``counts[p]`` records of each producer p, all acknowledged, each delivered once."""
    ids = [(producer, sequence) for producer, count in enumerate(counts) for sequence in range(count)]
    sent = [Record(producer, sequence, number % partitions, number // partitions) for number, (producer, sequence) in enumerate(ids)]
    delivered = [Copy(row.producer, row.sequence, row.crc, row.partition, row.offset or 0) for row in sent]
    return Histories(sent, delivered)


def _ints(values: Iterable[int | None]) -> np.ndarray:
    return np.array([-1 if value is None else value for value in values], np.int64)


# --- a whole run's folder -----------------------------------------------------------------------------------------------------------

SPEC = RunSpec("run", "experiment", "kafka_to_kafka", "two_phase_commit", Guarantee.EXACTLY_ONCE, (), ("kill_executor-1",), 7)
HOLDS = [{"check": "the process is gone", "passed": True, "detail": "pid 1"}]
INJECTION = "kill_executor-1"


def at(seconds: float) -> str:
    return (BEGUN + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


@dataclass
class Story:
    """A run that went well, told second by second; a test changes one thing of it and writes it down."""

    histories: Histories = field(default_factory=lambda: _batched(clean(60)))
    events: list[dict[str, Any]] = field(default_factory=lambda: [dict(event) for event in _EVENTS])
    progress: list[dict[str, Any]] = field(default_factory=lambda: [dict(line) for line in _PROGRESS])
    drain: dict[str, Any] = field(default_factory=lambda: {"complete": True, "reason": None})

    def without(self, *events: str) -> Story:
        self.events = [event for event in self.events if event["event"] not in events]
        return self

    def write(self, path: Path) -> RunFolder:
        folder = RunFolder.create(path)
        self.histories.write(folder, just_before_its_batch_ended)
        folder.journal.path.write_text("".join(json.dumps(event) + "\n" for event in self.events))
        folder.progress.write_text("".join(json.dumps(line) + "\n" for line in self.progress))
        write_atomically(folder.drain, json.dumps({"records": len(self.histories.delivered), **self.drain}))
        write_atomically(folder.source, json.dumps({"end_offsets": self.ends()}))
        manifest.write(folder)
        return folder

    def ends(self) -> dict[str, int]:
        """Where the partitions of the source end: behind the last ACKED record of each, whether or not its offset is known."""
        ends = Counter(row.partition for row in self.histories.sent if row.outcome is Outcome.ACKED)
        for row in self.histories.sent:
            if row.offset is not None:
                ends[row.partition] = max(ends[row.partition], row.offset + 1)
        return {str(partition): end for partition, end in sorted(ends.items())}


def unjudged(spec: RunSpec, outcome: RunOutcome, reason: str) -> dict[str, Any]:
    """The verdict on a run whose records were not judged, as its file holds it."""
    account = spec.account()
    known = {name: getattr(account, name) for name in Account.model_fields}
    return Verdict.model_validate({**known, "outcome": outcome, "reason": reason}).to_json()


def as_of(verdict: dict[str, Any]) -> Decision:
    """What a stored verdict decided."""
    return Decision(RunOutcome(verdict["outcome"]), verdict["reason"])


def typed(lines: Iterable[dict[str, Any]]) -> list[Event]:
    """The events of lines of a journal."""
    return [EVENTS[line["event"]].from_json(line) for line in lines]


_EVENTS: tuple[dict[str, Any], ...] = (
    {"at": at(0), "event": "driver_started", "start": 1, "pid": 1},
    {"at": at(1), "event": "phase", "phase": "steady"},
    {"at": at(4), "event": "phase", "phase": "impact"},
    {"at": at(5), "event": "injection_started", "injection": INJECTION, "fault": "kill_executor", "target": {}, "parameters": {"count": 1}},
    {"at": at(5.5), "event": "injection_injected", "injection": INJECTION, "target": {"killed": [1]}},
    {"at": at(6), "event": "injection_evidence", "injection": INJECTION, "checks": HOLDS},
    {"at": at(7), "event": "injection_healed", "injection": INJECTION, "checks": []},
    {"at": at(9), "event": "phase", "phase": "recovery"},
    {"at": at(12), "event": "phase", "phase": "done"},
    {"at": at(13), "event": "stage_finished", "stage": "drain", "seconds": 1.0},
)


def _batch(number: int, seconds: float) -> dict[str, Any]:
    ends = {str(partition): (number + 1) * 5 for partition in range(3)}
    begins = {str(partition): number * 5 for partition in range(3)}
    return {"batch": number, "start": 1, "rows": 15, "committed_at": at(seconds), "from": begins, "until": ends}


_ENDS = (2.0, 4.5, 8.0, 10.0)
_PROGRESS = tuple(_batch(number, seconds) for number, seconds in enumerate(_ENDS))


def _batched(histories: Histories) -> Histories:
    """Its copies say which of the batches of ``_PROGRESS`` wrote them."""
    histories.delivered = [replace(copy, batch=copy.offset // 5) for copy in histories.delivered]
    return histories


def just_before_its_batch_ended(number: int) -> datetime:
    """Of the clean story's copies; what a test adds came with the first batch, when nothing was broken yet."""
    batch = number // 15
    return BEGUN + timedelta(seconds=_ENDS[batch if batch < len(_ENDS) else 0] - 0.1)
