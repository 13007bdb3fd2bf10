"""The run's timeline, ``journal.jsonl``: one typed event a line.

A line is a JSON object with ``at`` (UTC, ISO 8601), ``event`` (the event's name) and the event's own fields. Each event is a class here:
its docstring says when it is written, its fields what the line holds. Code appends and reads these classes; the names are on the disk only.

Runs of other versions can be read: events that are not known and fields that an event does not have are skipped, a field with a default may
be missing. A field without one must be there, or the journal is damaged evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from streamproof.evidence.files import EvidenceError, append_json_line, read_json_lines, utc_now


def injections_of(faults: Iterable[str]) -> Iterator[str]:
    """What the injections of a run are called, one of each of the faults in their order: the first of a fault `kill_driver-1`."""
    counts = Counter[str]()
    for fault in faults:
        counts[fault] += 1
        yield f"{fault}-{counts[fault]}"


def fault_of(injection: str) -> str:
    """The fault of an injection of that name."""
    return injection.rpartition("-")[0]


@dataclass(frozen=True, kw_only=True)
class Event:
    """What every event has. ``at`` is set when the event is appended."""

    __test__: ClassVar[bool] = False  # some names begin with Test, which pytest takes for a test
    name: ClassVar[str]
    at: str = ""

    def __init_subclass__(cls, name: str = "") -> None:
        super().__init_subclass__()
        cls.name = name
        if name:
            EVENTS[name] = cls

    def to_json(self) -> dict[str, Any]:
        """The line; optional fields that are None are left out."""
        line: dict[str, Any] = {"at": self.at, "event": self.name}
        for attribute in fields(self)[1:]:
            value = getattr(self, attribute.name)
            if value is None and attribute.default is None:
                continue
            if attribute.name == "details":
                line |= value
            else:
                line[attribute.name] = [check.to_json() for check in value] if attribute.name == "checks" else value
        return line

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Self:
        """Raises KeyError naming a field that is missing."""
        values: dict[str, Any] = {}
        for attribute in fields(cls):
            optional = attribute.default is not MISSING or attribute.default_factory is not MISSING
            if attribute.name in line or attribute.name == "at" or not optional:
                values[attribute.name] = line[attribute.name]
        if "checks" in values:
            values["checks"] = tuple(EvidenceCheck.from_json(check) for check in values["checks"])
        if any(attribute.name == "details" for attribute in fields(cls)):
            declared = {"event", *(attribute.name for attribute in fields(cls))}
            values["details"] = {name: value for name, value in line.items() if name not in declared}
        return cls(**values)


E = TypeVar("E", bound=Event)
EVENTS: dict[str, type[Event]] = {}


@dataclass(frozen=True)
class EvidenceCheck:
    """One checked statement about the system under test."""

    check: str
    passed: bool
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"check": self.check, "passed": self.passed, "detail": self.detail}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        return cls(fields["check"], bool(fields["passed"]), str(fields.get("detail") or ""))


# --- the run and its stages -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RunCreated(Event, name="run_created"):
    """the run's folder was made"""

    run: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class TestbedTaken(Event, name="testbed_taken"):
    """the run took the testbed, whose files are in ``folder``"""

    folder: str | None = None


@dataclass(frozen=True, kw_only=True)
class MessagesRead(Event, name="messages_read"):
    """the messages between the job and its servers are read from now on, at these proxies"""

    links: list[str]


@dataclass(frozen=True, kw_only=True)
class Restored(Event, name="restored"):
    """the run gave the testbed back in its steady state; the fields say what was cleaned up"""

    killed: list[int] = field(default_factory=list)
    healed: list[str] | None = None
    toxics: list[str] | None = None
    recovered: dict[str, Any] | None = None
    steady_state: list[dict[str, Any]] | None = None


@dataclass(frozen=True, kw_only=True)
class KafkaRebuilt(Event, name="kafka_rebuilt"):
    """Kafka was made anew with the number of brokers that the experiment asks for"""

    brokers: int


@dataclass(frozen=True, kw_only=True)
class TestbedRebuilt(Event, name="testbed_rebuilt"):
    """the testbed could not be brought to its steady state, and was built anew"""

    reason: str


@dataclass(frozen=True, kw_only=True)
class StageStarted(Event, name="stage_started"):
    """a stage began, in the process ``pid``"""

    stage: str
    pid: int


@dataclass(frozen=True, kw_only=True)
class StageFinished(Event, name="stage_finished"):
    """a stage succeeded"""

    stage: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class StageFailed(Event, name="stage_failed"):
    """a stage failed"""

    stage: str
    error: str


@dataclass(frozen=True, kw_only=True)
class StageEnded(Event, name="stage_ended"):
    """a stage ended because the run did"""

    stage: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Aborted(Event, name="aborted"):
    """the run was stopped"""

    reason: str


@dataclass(frozen=True, kw_only=True)
class RunnerVanished(Event, name="runner_vanished"):
    """the process that carried the run is gone, and the watchdog restores the testbed"""

    reason: str


@dataclass(frozen=True, kw_only=True)
class HistoryFailed(Event, name="history_failed"):
    """the run could not be written to the history of runs"""

    error: str


@dataclass(frozen=True, kw_only=True)
class ClockStepped(Event, name="clock_stepped"):
    """the machine's clock was set, by ``step_ms``; when it was set back it showed the time from ``since`` to ``until`` twice"""

    step_ms: int
    since: str
    until: str


# --- the job ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PhaseBegan(Event, name="phase"):
    """a phase began: steady, impact or recovery; ``done`` ends the last"""

    phase: str


@dataclass(frozen=True, kw_only=True)
class LoadStarted(Event, name="load_started"):
    """the workload began"""

    records: int


@dataclass(frozen=True, kw_only=True)
class LoadFinished(Event, name="load_finished"):
    """the workload was sent; how many records have each outcome"""

    acked: int
    rejected: int = 0
    indeterminate: int = 0


@dataclass(frozen=True, kw_only=True)
class DriverStarted(Event, name="driver_started"):
    """the driver's process was started for the ``start``-th time"""

    start: int
    pid: int | None = None


@dataclass(frozen=True, kw_only=True)
class DriverReady(Event, name="driver_ready"):
    """the driver's query runs, and goes on at the offsets ``resumes_at``"""

    start: int
    application: str | None = None
    ui: str | None = None
    query: str | None = None
    resumes_at: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DriverExited(Event, name="driver_exited"):
    """the driver's process ended"""

    start: int
    pid: int | None = None
    code: int | None = None
    reason: str = "unknown"


@dataclass(frozen=True, kw_only=True)
class WritersEnded(Event, name="writers_ended"):
    """before the drain every process of the job had ended: how many ended by themselves, how many were killed after ``seconds``"""

    by_themselves: int
    killed: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Recovered(Event, name="recovered"):
    """a start of the driver finished or undid what an earlier one had left; ``details`` are the strategy's own"""

    start: int
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DecisionLost(Event, name="decision_lost"):
    """the job went on without a transaction that it had decided to commit: the broker had aborted it"""

    start: int
    batch: int
    transaction: str
    error: str | None = None


# --- faults -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class InjectionEvent(Event):
    """What the moments of one injection have in common."""

    injection: str


@dataclass(frozen=True, kw_only=True)
class InjectionStarted(InjectionEvent, name="injection_started"):
    """a fault is about to be injected; ``target`` holds all that healing it needs"""

    fault: str
    target: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] | None = None
    phase: str = "impact"


@dataclass(frozen=True, kw_only=True)
class InjectionInjected(InjectionEvent, name="injection_injected"):
    """a fault was injected"""

    target: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class InjectionEvidence(InjectionEvent, name="injection_evidence"):
    """what was checked of the system under test after injecting"""

    checks: tuple[EvidenceCheck, ...]


@dataclass(frozen=True, kw_only=True)
class InjectionHealed(InjectionEvent, name="injection_healed"):
    """a fault was healed, and what was checked after that"""

    checks: tuple[EvidenceCheck, ...]


@dataclass(frozen=True, kw_only=True)
class InjectionFailed(InjectionEvent, name="injection_failed"):
    """a fault could not be injected, or had no effect in time"""

    error: str


@dataclass(frozen=True, kw_only=True)
class TargetFound(Event, name="target_found"):
    """the executor that a fault is about to kill"""

    fault: str | None = None
    executor: str | None = None
    running_tasks: int | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FailpointFired(Event, name="failpoint_fired"):
    """a failpoint was reached at which a crash was ordered; a task says its ``partition`` and ``attempt``"""

    failpoint: str
    batch: int
    action: str = "kill_driver"
    pid: int | None = None
    created: float | None = None
    partition: int | None = None
    attempt: int | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FailpointHeld(Event, name="failpoint_held"):
    """a process is held at a failpoint while a fault is injected"""

    failpoint: str
    batch: int
    pid: int
    created: float | None = None
    partition: int | None = None
    attempt: int | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FailpointReleased(Event, name="failpoint_released"):
    """the process that was held goes on"""

    failpoint: str
    batch: int
    after_s: float


# --- the file ---------------------------------------------------------------------------------------------------------------------


class Journal:
    """Several processes append to it side by side; a line is one ``write`` to a descriptor in append mode."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: Event) -> None:
        """Append an event and force it to disk: what is journaled before a fault must survive the fault."""
        append_json_line(self.path, replace(event, at=utc_now()).to_json(), durable=True)

    def events(self) -> list[Event]:
        """The events so far, oldest first. Raises EvidenceError when the file is damaged."""
        return list(self._read(Event))

    def all(self, *kinds: type[E]) -> list[E]:
        """The events of these kinds, oldest first. Raises EvidenceError when the file, or one of them, is damaged."""
        return list(self._read(*kinds))

    def last(self, *kinds: type[E]) -> E | None:
        """The last event of these kinds. Raises EvidenceError as :meth:`all` does."""
        return next(reversed(self.all(*kinds)), None)

    def _read(self, *kinds: type[E]) -> Iterator[E]:
        for line in read_json_lines(self.path):
            if "event" not in line:
                raise EvidenceError(f"{self.path} is damaged: event missing in {str(line)[:80]}")
            kind = EVENTS.get(str(line["event"]))
            if kind is None or not issubclass(kind, kinds):
                continue
            try:
                yield kind.from_json(line)
            except KeyError as missing:
                raise EvidenceError(f"{self.path} is damaged: {missing.args[0]} missing in {str(line)[:80]}") from missing
