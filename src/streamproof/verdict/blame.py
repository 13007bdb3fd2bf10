"""Blame: one sentence for each anomalous record: where it came from, which batches held it, and which fault was active then.

Blame needs the histories and the run's timeline: the micro-batches with their source offset ranges (``progress.jsonl``) and the journal.
What the timeline does not contain, the sentence leaves out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from streamproof.evidence.clock import UNKNOWN
from streamproof.evidence.histories import Delivered, Sent
from streamproof.evidence.journal import (
    DecisionLost,
    DriverExited,
    Event,
    FailpointFired,
    InjectionHealed,
    InjectionInjected,
    InjectionStarted,
    TargetFound,
)
from streamproof.verdict.anomaly import RESULT_KINDS, Anomaly
from streamproof.verdict.checks.matching import Finding

# What blame can name, the most telling first: a failpoint says more than the exit that it causes.
_STRIKES: tuple[type[Event], ...] = (FailpointFired, TargetFound, InjectionInjected, DriverExited)
NEARBY = timedelta(seconds=30)
_LATEST = "9"  # behind every stamp


class Timeline:
    """What happened when: micro-batches and journaled events, oldest first. ``places`` says of parts of the output, by their number, what
    else is known of who wrote them, for an output that says so."""

    def __init__(self, progress: Sequence[dict[str, Any]], events: Sequence[Event], places: Mapping[int, str] | None = None) -> None:
        self._progress, self.places = progress, places or {}
        self._covered: dict[tuple[int, int], list[dict[str, Any]]] = {}  # what was asked before: records are lost and doubled in crowds
        self._causes: dict[datetime, str | None] = {}
        self._strikes = [event for event in events if isinstance(event, _STRIKES)]
        healed = {event.injection: event.at for event in events if isinstance(event, InjectionHealed)}
        started = {event.injection: event.at for event in events if isinstance(event, InjectionStarted)}
        self._injections = {name: (at, healed.get(name, _LATEST)) for name, at in started.items()}
        self._lost_decisions = {event.batch: event.transaction for event in events if isinstance(event, DecisionLost)}
        self._deleted = [
            (event.at, event.injection, event.target["below"])
            for event in events
            if isinstance(event, InjectionInjected) and isinstance(event.target.get("below"), dict)
        ]
        self._made_anew = [
            (event.injection, event.target["made_anew"])
            for event in events
            if isinstance(event, InjectionInjected) and isinstance(event.target.get("made_anew"), dict)
        ]

    def batches(self, partition: int, offset: int) -> list[str]:
        """The committed micro-batches whose input held this source record, as "batch 17 of start 2"."""
        return [f"batch {line['batch']} of start {line['start']}" for line in self._covering(partition, offset)]

    def _covering(self, partition: int, offset: int) -> list[dict[str, Any]]:
        if (partition, offset) not in self._covered:
            self._covered[partition, offset] = list(self._lines(partition, offset))
        return self._covered[partition, offset]

    def _lines(self, partition: int, offset: int) -> Iterator[dict[str, Any]]:
        name = str(partition)
        reached: dict[int, int] = {}  # per start: where the batch begins that does not say from where it read
        for line in self._progress:
            until = line["until"].get(name, 0)
            begin = (line["from"] or {}).get(name, reached.get(line["start"], max(reached.values(), default=0)))
            if begin <= offset < until:
                yield line
            reached[line["start"]] = until

    def cause_before(self, stamp: datetime | None) -> str | None:
        """What was broken shortly before ``stamp``: of the most telling kind the last."""
        if stamp is None:
            return None
        if stamp not in self._causes:
            self._causes[stamp] = self._cause_before(stamp)
        return self._causes[stamp]

    def during(self, stamp: datetime) -> str | None:
        """The injections that were going on at ``stamp``, or else what was broken shortly before."""
        at = stamp.isoformat(timespec="milliseconds")
        names = [name for name, (begun, ended) in self._injections.items() if begun <= at <= ended]
        return f"during {' and '.join(names)}" if names else self.cause_before(stamp)

    def _cause_before(self, stamp: datetime) -> str | None:
        near = [event for event in self._strikes if timedelta(0) <= stamp - datetime.fromisoformat(event.at) <= NEARBY]
        telling = min(reversed(near), key=lambda event: _STRIKES.index(type(event)), default=None)
        if telling is None or isinstance(telling, InjectionInjected):
            return _strike(telling) if telling is not None else None
        during = [name for name, (begun, ended) in self._injections.items() if begun <= telling.at <= ended]
        return (f"during {' and '.join(during)}, " if during else "") + _strike(telling)

    def cause_on(self, partition: int, offset: int) -> str | None:
        """What was broken shortly before the first micro-batch ended that held this source record, or that went on behind it."""
        held = self._covering(partition, offset) or self._behind(partition, offset)
        return self.cause_before(datetime.fromisoformat(held[0]["committed_at"])) if held else None

    def passed_over(self, partition: int, offset: int) -> str | None:
        """The first micro-batch that begins behind this source record, as "batch 18 of start 2"."""
        behind = self._behind(partition, offset)
        return f"batch {behind[0]['batch']} of start {behind[0]['start']}" if behind else None

    def _behind(self, partition: int, offset: int) -> list[dict[str, Any]]:
        return [line for line in self._progress if (line["from"] or {}).get(str(partition), 0) > offset]

    def lost_decision(self, partition: int, offset: int) -> str | None:
        """What became of the decision to commit the micro-batch that held this source record, if it could not be carried out."""
        for line in self._covering(partition, offset):
            if (transaction := self._lost_decisions.get(line["batch"])) is not None:
                return f"batch {line['batch']} was decided, and the broker had aborted its transactions ({transaction})"
        return None

    def expired(self, partition: int, offset: int) -> str | None:
        """The injection by which the source deleted this record before any micro-batch that held it had ended, if one did."""
        ends = [line["committed_at"] for line in self._covering(partition, offset)]
        for at, name, below in self._deleted:
            if offset < below.get(str(partition), 0) and all(at < end for end in ends):
                return name
        return None

    def taken_for_read(self, partition: int, offset: int) -> str | None:
        """The injection that made the topic anew, if the micro-batch that passed over this source record began in the topic before."""
        for name, base in self._made_anew:
            place = base.get(str(partition), 0)
            lines = self._covering(partition, offset) if offset >= place else []
            if any((line["from"] or {}).get(str(partition), 0) <= place for line in lines):
                return name
        return None


_CRASHES = {
    "kill_driver": "the driver was killed",
    "kill_worker": "a Python worker was killed",
    "kill_executor": "an executor was killed",
    "raise": "an error was raised",
}


def _strike(event: Event) -> str:
    if isinstance(event, FailpointFired):
        task = f" (task {event.partition}, attempt {event.attempt})" if event.partition is not None else ""
        return f"{_CRASHES[event.action]} at {event.failpoint} of batch {event.batch}{task}"
    if isinstance(event, TargetFound):
        return f"executor {event.executor} was killed while it held {event.running_tasks} running tasks"
    if isinstance(event, DriverExited):
        return f"driver start {event.start} ended ({event.reason})"
    if isinstance(event, InjectionInjected):
        return f"{event.injection} was injected"
    raise ValueError(f"{event.name} breaks nothing")


def explain(finding: Finding, sent: Sent, delivered: Delivered, delivered_at: np.ndarray, timeline: Timeline) -> str:
    """One sentence about ``finding``. ``delivered_at`` has the delivered rows' times, in ms since the epoch, or UNKNOWN."""
    if finding.anomaly in RESULT_KINDS:
        return _result(finding, delivered, delivered_at, timeline)
    name = _name(finding, sent)
    copies = [_copy(row, delivered, timeline) for row in sorted(finding.delivered, key=lambda row: delivered_at[row])[:4]]
    more = f" and {len(finding.delivered) - 4} more" if len(finding.delivered) > 4 else ""
    if finding.anomaly is Anomaly.LOST:
        return f"{name} was {_too_few(finding, sent)}; {_held(finding, sent, timeline)}{_lost_by(finding, sent, timeline)}"
    if finding.anomaly is Anomaly.DUPLICATED:
        held = "" if any(delivered.batch[row] >= 0 for row in finding.delivered) else f"; {_held(finding, sent, timeline)}"
        last = int(delivered_at[list(finding.delivered)].max())
        cause = timeline.cause_before(datetime.fromtimestamp(last / 1000, UTC)) if last != UNKNOWN else None
        due = f", not {finding.due}" if finding.due > 1 else ""
        return f"{name} was delivered {finding.copies} times{due}: {', then '.join(copies)}{more}{held}" + (
            f"; shortly before, {cause}" if cause else ""
        )
    if finding.anomaly is Anomaly.REORDERED:
        return (
            f"{name} came behind one of its key that was read after it{_at(copies)}"
            if copies
            else f"{name} is away from its key's partition"
        )
    if finding.anomaly is Anomaly.TORN:
        first = f"the first that is missing is {name}"
        return f"batch {finding.batch} of start {finding.start} is torn: {finding.copies} of its records are visible, others not; {first}"
    if finding.anomaly is Anomaly.OFFSET_AHEAD:
        return f"{name} was delivered only after its offset had been committed; {_held(finding, sent, timeline)}{_at(copies)}"
    if finding.anomaly is Anomaly.VANISHED:
        cause = timeline.during(datetime.fromtimestamp(finding.about[0] / 1000, UTC)) if finding.about else None
        return f"{name} vanished: {finding.detail}" + (f"; {cause}" if cause else "")
    if finding.anomaly is Anomaly.PHANTOM:
        why = "nobody sent it" if finding.sent is None else "its send was refused" if sent.rejected[finding.sent] else "it was not to be"
        return f"{name} was delivered although {why}: {', '.join(copies)}{more}"
    return f"{name} was delivered damaged: {', '.join(copies)}{more}"


_RESULTS = {
    Anomaly.MISSING: "is missing",
    Anomaly.UNEXPECTED: "was delivered, and should not have been",
    Anomaly.WRONG_VALUE: "was delivered wrong",
    Anomaly.REPEATED: "was delivered {copies} times",
}


def _result(finding: Finding, delivered: Delivered, delivered_at: np.ndarray, timeline: Timeline) -> str:
    """One sentence about a result of a stateful job."""
    if finding.anomaly is Anomaly.DROPPED:
        return f"batch {finding.batch} of start {finding.start}: {finding.detail}"
    copies = [_copy(row, delivered, timeline) for row in sorted(finding.delivered, key=lambda row: delivered_at[row])[:4]]
    last = int(delivered_at[finding.delivered[-1]]) if finding.delivered else UNKNOWN
    cause = timeline.cause_before(datetime.fromtimestamp(last / 1000, UTC)) if last != UNKNOWN else None
    what = _RESULTS[finding.anomaly].format(copies=finding.copies)
    more = f" and {len(finding.delivered) - 4} more" if len(finding.delivered) > 4 else ""
    where = f" ({', then '.join(copies)}{more})" if copies else ""
    return f"{finding.result} {what}{where}: {finding.detail}" + (f"; shortly before, {cause}" if cause else "")


def _too_few(finding: Finding, sent: Sent) -> str:
    sure = finding.sent is not None and sent.acked[finding.sent]
    if not finding.copies:
        return "acknowledged but never delivered"
    return f"{'acknowledged but ' if sure else ''}delivered {finding.copies} times, not {finding.due}"


def _at(copies: Sequence[str]) -> str:
    return f" ({', '.join(copies)})" if copies else ""


def _name(finding: Finding, sent: Sent) -> str:
    if finding.sent is None and finding.producer is None:
        return "a record without a readable identity"
    at = finding.sent
    name = f"record {finding.producer}/{finding.sequence}" if at is None else f"record {sent.producer[at]}/{sent.sequence[at]}"
    if finding.sent is None or sent.partition[finding.sent] < 0:
        return name
    offset = sent.offset[finding.sent]
    return f"{name} (source partition {sent.partition[finding.sent]}" + (f", offset {offset})" if offset >= 0 else ")")


def _held(finding: Finding, sent: Sent, timeline: Timeline) -> str:
    if finding.sent is None or sent.offset[finding.sent] < 0:
        return "its source offset is unknown"
    batches = timeline.batches(int(sent.partition[finding.sent]), int(sent.offset[finding.sent]))
    if batches:
        return f"it was read by {' and '.join(batches)}"
    behind = timeline.passed_over(int(sent.partition[finding.sent]), int(sent.offset[finding.sent]))
    return "no committed batch covers its offset" + (f", and {behind} went on behind it" if behind else "")


def _lost_by(finding: Finding, sent: Sent, timeline: Timeline) -> str:
    if finding.sent is None or sent.offset[finding.sent] < 0:
        return ""
    at = int(sent.partition[finding.sent]), int(sent.offset[finding.sent])
    if (expired := timeline.expired(*at)) is not None:
        return f"; the source had deleted it before it was delivered ({expired})"
    if (anew := timeline.taken_for_read(*at)) is not None:
        return f"; the topic had been made anew, and the checkpoint's offset lies behind it ({anew})"
    if (undone := timeline.lost_decision(*at)) is not None:
        return f"; {undone}"
    cause = timeline.cause_on(*at)
    return f"; shortly before that ended, {cause}" if cause else ""


def _copy(row: int, delivered: Delivered, timeline: Timeline) -> str:
    where = f"output {delivered.partition[row]}/{delivered.offset[row]}"
    if (place := timeline.places.get(int(delivered.partition[row]))) is not None:
        where = f"{where}, {place}"
    if delivered.batch[row] < 0:
        return where
    return f"by batch {delivered.batch[row]} attempt {delivered.attempt[row]} of start {delivered.start[row]} ({where})"
