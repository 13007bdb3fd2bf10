"""The windows of a job: between which two steps a crash finds another state, as seen from outside.

A *step* is something that a crash does not undo: a message that a server has carried out (``Produce``, ``EndTxn``, ``COMMIT orders``), or
a file that is there (``offsets`` and ``commits`` of Spark's checkpoint, a checkpoint of Flink, a log of ``decisions``, a file of the
output). A *window* lies between two steps that follow each other. It is named by both: ``INSERT orders > commits``. Which windows a job
has is read from the trace of a run without faults; what comes in each batch anew comes again and again, and what was seen only once
belongs to the job's start or end.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from streamproof.jobs.job import Job
from streamproof.testbed.messages import STATEMENTS, Message, Side

ARROW = " > "
OR = " or "
"""Between the names of several windows, of which the one is meant to which the job comes first."""
Edge = tuple[Side, str]
"""Which side of a message is held, and which step it is."""
ANY = "any"
"""Instead of a window's name: one that is drawn from those that the job has passed so far."""
SEEN = 2
"""How often a window must have been seen."""
CHANGING = frozenset({"Produce", "InitProducerId", "TxnOffsetCommit", "EndTxn", "OffsetCommit"})
OF_TABLES = ("INSERT", "UPDATE", "DELETE", "COPY", "MERGE", "TRUNCATE")
ENDING = ("COMMIT", "PREPARE TRANSACTION")
DECIDING = ("COMMIT PREPARED", "ROLLBACK PREPARED")
_LONGEST_FIRST = sorted({*CHANGING, *STATEMENTS}, key=len, reverse=True)
LOGS = ("offsets", "commits", "_spark_metadata", "_delta_log", "decisions")
"""Folders that get a file with each batch, named by its number, or by that of the table's version."""
CHECKSUM = ".crc"  # Delta writes one beside each version
OUTPUT_FILE = "output file"
TABLE_METADATA = "metadata.json"
"""A version of an Iceberg table whose catalog is the file system: to bring such a file is to commit."""
CHECKPOINT = "checkpoint"
"""A checkpoint of Flink is whole."""
_FLINK_CHECKPOINT, _FLINK_METADATA = re.compile(r"chk-\d+"), "_metadata"
_ICEBERG_VERSION, _ICEBERG_HINT = re.compile(r"v\d+\.metadata\.json"), "version-hint.text"
_IDENTIFIER = r'(?:"[^"]+"|\w+)'
_TABLE = re.compile(
    r"(?:INSERT\s+INTO|MERGE\s+INTO|UPDATE|DELETE\s+FROM|COPY|TRUNCATE(?:\s+TABLE)?)\s+(?:ONLY\s+)?"
    rf"(?:{_IDENTIFIER}\.)?(?!SET\b)({_IDENTIFIER})",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Step:
    """``begun_ns`` is when its request was seen, ``done_ns`` when its server answered, by ``time.time_ns``. A file has one time."""

    name: str
    begun_ns: int
    done_ns: int


@dataclass(frozen=True)
class Window:
    """``seen`` is how often it was passed, ``open_ms`` the median of how long it was open."""

    after: str
    before: str
    seen: int
    open_ms: float

    @property
    def name(self) -> str:
        return f"{self.after}{ARROW}{self.before}"


_SAID = {
    "Produce": ("records are written", "others are not"),
    "InitProducerId": ("the producer has a new epoch", "none for the next"),
    "TxnOffsetCommit": ("the offset is in the open transaction", "the offset is not in the transaction"),
    "EndTxn": ("the transaction is committed", "the transaction is still open"),
    "OffsetCommit": ("the offset is committed", "the offset is not committed"),
    "COMMIT PREPARED": ("a prepared transaction is committed", "a prepared transaction is not"),
    "ROLLBACK PREPARED": ("a prepared transaction is rolled back", "a prepared transaction is not"),
    "offsets": ("the batch is planned", "the next batch is not planned"),
    "commits": ("the checkpoint counts the batch as done", "the checkpoint does not count the batch as done"),
    "_spark_metadata": ("the log names the batch's files", "the log does not name the batch's files"),
    "_delta_log": ("the table has a version more", "the table does not have the next version"),
    TABLE_METADATA: ("the table has a version more", "the table does not have the next version"),
    "decisions": ("the commit is decided", "the commit is not decided"),
    CHECKPOINT: ("the checkpoint is complete", "the checkpoint is not complete"),
    OUTPUT_FILE: ("a file is written", "another is not"),
}
"""What is true once a step is done, and before it is."""
_SAID_OF_TABLES = {
    "COMMIT": ("{tables} committed", "{tables} not committed"),
    "PREPARE TRANSACTION": ("{tables} prepared", "{tables} not prepared"),
    "": ("{tables} changed", "{tables} not changed"),
}


def leaves(window: str) -> str:
    """What a crash in the window leaves, in words. Raises ValueError when it is no window's name."""
    after, before = parsed(window)
    if after == before:
        return f"{_said(after, 0)}, but not all of the batch"
    return f"{_said(after, 0)}, {_said(before, 1)}"


def _said(step: str, side: int) -> str:
    of_kind = kind(step)
    if words := _SAID.get(step, _SAID.get(of_kind)):
        return words[side]
    tables = step.removeprefix(of_kind).strip() or "a table"
    several = f"{tables} are" if "," in tables else f"{tables} is"
    return _SAID_OF_TABLES.get(of_kind, _SAID_OF_TABLES[""])[side].format(tables=several)


def parsed(name: str) -> tuple[str, str]:
    """The steps before and after a window. Raises ValueError when it is no window's name."""
    after, arrow, before = name.partition(ARROW)
    if not arrow or not after.strip() or not before.strip():
        raise ValueError(f"expected the name of a window, as in `INSERT orders{ARROW}commits`, came {name!r}")
    return after.strip(), before.strip()


def named(window: str | None) -> str | None:
    """A window's name, or those of several, as it is written everywhere. Raises ValueError when it is none, or when nobody can wait for
    the several at once."""
    if window is None:
        return None
    names = [_named(name) for name in alternatives(window)]
    if (why_not := never_together(names)) is not None:
        raise ValueError(why_not)
    return OR.join(dict.fromkeys(names))


def _named(window: str) -> str:
    after, before = parsed(window)
    for step in (after, before):
        if not is_file(step) and not kind(step):
            raise ValueError(f"there is no step {step!r}; `streamproof windows` lists the windows of a job")
    return f"{after}{ARROW}{before}"


def alternatives(window: str) -> list[str]:
    """The names of which a trigger names one or several."""
    return [name.strip() for name in window.split(OR)]


def never_together(names: Sequence[str]) -> str | None:
    """Why nobody can wait for whichever of the windows comes first; None where one can. A message is held once: as a request, or as an
    answer."""
    held: dict[str, tuple[Side, str]] = {}
    for name in names if len(names) > 1 else ():
        if (at := edge(name)) is None:
            return f"the window {name} lies between two files, where no message can be held: it cannot be one of several"
        side, other = held.setdefault(kind(at[1]), (at[0], name))
        if side != at[0]:
            return f"the windows {other} and {name}: in one a {kind(at[1])} is held, in the other its answer; give one of them"
    return None


def edge(window: str) -> Edge | None:
    """Which message is held for the window: the request that ends it, or where that is a file the answer to the one that begins it. None
    between two files."""
    after, before = parsed(window)
    if not is_file(before):
        return "request", before
    return None if is_file(after) else ("answer", after)


def edges(names: Iterable[str]) -> dict[str, Edge]:
    """The same of each of the windows that has one."""
    return {name: at for name in names if (at := edge(name)) is not None}


def is_file(step: str) -> bool:
    return step in LOGS or step in (CHECKPOINT, OUTPUT_FILE, TABLE_METADATA)


def kind(step: str) -> str:
    """What kind of message a step is, by the name that a rule knows; empty for none."""
    return next((name for name in _LONGEST_FIRST if step == name or step.startswith(f"{name} ")), "")


@dataclass
class Request:
    """A message on its way: ``done_ns`` is when its answer came, or its connection was closed; None as long as neither has been seen."""

    message: str
    name: str | None
    """The step that it is; None for one that changes nothing that lasts."""
    begun_ns: int
    done_ns: int | None = None
    statement: str = ""
    """What it changes of PostgreSQL's, as `INSERT orders`, whether or not that is a step; else empty."""


@dataclass
class _Session:
    """A connection to PostgreSQL: which tables its open transaction has changed, and whether one is open."""

    tables: set[str] = field(default_factory=set)
    open: bool = False


@dataclass
class Trace:
    """The trace of a run, read as it grows. ``steps`` are what servers carried out, in the order of their answers.

    What a transaction of PostgreSQL does before it is committed is no step: it is gone when its connection is. Its COMMIT is named by the
    tables that it changed. What a transaction of Kafka holds outlives its producer until somebody aborts it, so its messages are steps.
    """

    job: Job
    steps: list[Step] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    """Those that are a step, or part of a transaction."""
    _read: int = 0
    _open: dict[tuple[int, int], Request] = field(default_factory=dict)
    _sessions: dict[int, _Session] = field(default_factory=dict)
    _last: dict[int, Step] = field(default_factory=dict)
    _names: dict[tuple[int, int], str | None] = field(default_factory=dict)

    def read_on(self) -> list[Step]:
        """The steps that came since the last call."""
        before = len(self.steps)
        if self.job.run.messages.exists():
            with self.job.run.messages.open("rb") as file:
                file.seek(self._read)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._read += len(line)
                    self._take(Message.parse(json.loads(line)))
        return self.steps[before:]

    def all_steps(self) -> list[Step]:
        """The steps so far, with the files that are there now, in the order in which they were done."""
        self.read_on()
        return sorted([*self.steps, *files(self.job)], key=lambda step: step.done_ns)

    def name(self, message: Message) -> str | None:
        """The name of the step that a request is, or that an answer is about; None for one that changes nothing that lasts."""
        if (request := (message.connection, message.number)) in self._names:
            return self._names[request]
        return self._statement(message) if message.protocol == "postgres" else _of_kafka(message, self.job)

    def _take(self, message: Message) -> None:
        request = message.connection, message.number
        if message.direction == "request":
            name = self.name(message)
            self._names[request] = name
            if name is not None and message.acks == 0:  # there will be no answer
                self.requests.append(Request(message.message, name, message.at_ns, message.at_ns))
                self.steps.append(Step(name, message.at_ns, message.at_ns))
            elif name is not None or message.message in OF_TABLES:
                self._open[request] = Request(message.message, name, message.at_ns, statement=_changes(message))
                self.requests.append(self._open[request])
            if message.protocol == "postgres":
                self._begin(message)
        elif message.direction == "answer":
            if asked := self._open.pop(request, None):
                asked.done_ns = message.at_ns
                if asked.name is not None and message.done and message.transaction in (None, "idle"):
                    self._done(Step(asked.name, asked.begun_ns, message.at_ns), message)
            if message.transaction == "idle":
                self._sessions.pop(message.connection, None)
        elif message.direction == "closed":
            for request in [request for request in self._open if request[0] == message.connection]:
                self._open.pop(request).done_ns = message.at_ns

    def _done(self, step: Step, message: Message) -> None:
        """Statements that were sent without waiting for each other are one step: PostgreSQL commits them together."""
        before = self._last.get(message.connection)
        if message.protocol == "postgres" and before is not None and before.name == step.name and step.begun_ns < before.done_ns:
            return
        self.steps.append(step)
        self._last[message.connection] = step

    def outstanding(self, but: Message) -> bool:
        """Whether a request that changes something is not answered yet, ``but`` for this one."""
        held = but.connection, but.number
        return any(asked.name is not None and request != held for request, asked in self._open.items())

    def _begin(self, message: Message) -> None:
        session = self._sessions.setdefault(message.connection, _Session())
        session.open |= "BEGIN" in message.statements
        session.tables |= _tables(message)

    def _statement(self, message: Message) -> str | None:
        session = self._sessions.get(message.connection, _Session())
        if ending := next((kind for kind in message.statements if kind in ENDING), None):
            changed = sorted(session.tables | _tables(message))
            return f"{ending} {', '.join(changed)}" if changed else None
        if message.message in DECIDING:
            return message.message
        return None if session.open else _changes(message) or None


def _changes(message: Message) -> str:
    """What a message of PostgreSQL's does to which tables; empty when it changes none."""
    changing = next((kind for kind in message.statements if kind in OF_TABLES), None)
    return "" if changing is None else " ".join([changing, ", ".join(sorted(_tables(message)))]).strip()


def _tables(message: Message) -> set[str]:
    """The tables that the statements of a message change."""
    return {name.strip('"') for name in _TABLE.findall(message.sql or "")} if set(message.statements) & set(OF_TABLES) else set()


def _of_kafka(message: Message, job: Job) -> str | None:
    if message.message not in CHANGING:
        return None
    if message.message == "Produce":
        other = sorted({place.topic for place in message.places} - {job.output_topic})
        return "Produce" if not other else f"Produce to {other[0].removeprefix(f'{job.name}-')}"
    return "EndTxn (abort)" if message.message == "EndTxn" and message.commit is False else message.message


def files(job: Job) -> list[Step]:
    """The files of the job's checkpoints and of its output that are there now, in the order of their times."""
    found = [Step(step, status.st_mtime_ns, status.st_mtime_ns) for step, _, status in _files(job)]
    return sorted(found, key=lambda step: step.done_ns)


def new_files(job: Job, step: str, since_ns: int, folders: Collection[Path] = ()) -> dict[Path, int]:
    """The files that are such a step and were changed since then, with their sizes in bytes. With ``folders`` only these are looked at."""
    return {path: status.st_size for name, path, status in _files(job, folders) if name == step and status.st_mtime_ns > since_ns}


def folders_of(job: Job, step: str) -> set[Path]:
    """The folders that hold files which are such a step; none where each batch may have one of its own."""
    return set() if step in (CHECKPOINT, OUTPUT_FILE) else {path.parent for name, path, _ in _files(job) if name == step}


def _files(job: Job, folders: Collection[Path] = ()) -> Iterator[tuple[str, Path, os.stat_result]]:
    for folder in (job.run.checkpoint, job.files):
        chosen = [path for each in folders if each.is_relative_to(folder) for path in each.glob("*")]
        for path in chosen if folders else folder.rglob("*") if folder.is_dir() else ():
            step = _of_file(path, output=folder == job.files)
            if step is not None:
                with contextlib.suppress(FileNotFoundError):
                    yield step, path, path.stat()


def _of_file(path: Path, *, output: bool) -> str | None:
    if path.name.startswith(".") or not path.is_file():
        return None
    if path.parent.name in LOGS:
        return path.parent.name if path.stem.isdigit() and path.suffix != CHECKSUM else None
    if path.name == _FLINK_METADATA and _FLINK_CHECKPOINT.fullmatch(path.parent.name):
        return CHECKPOINT
    if not output or path.name.startswith("_") or path.name == _ICEBERG_HINT:
        return None
    return TABLE_METADATA if _ICEBERG_VERSION.fullmatch(path.name) else OUTPUT_FILE


@dataclass(frozen=True)
class Strike:
    """That a fault struck the driver at the edge of a window. ``at_ns`` is when, by ``time.time_ns``; of one that lingered, when it held
    its message there."""

    window: str
    at_ns: int


def strikes(target: Mapping[str, Any]) -> list[Strike]:
    """Those that a fault's target has, in their order. None for a fault that does not aim at windows, or has not struck yet."""
    return [Strike(**strike) for strike in target.get("strikes", ())]


def windows(steps: Sequence[Step], least: int = SEEN) -> list[Window]:
    """The windows between steps that follow each other, in the order in which they were first passed."""
    open_ms: dict[tuple[str, str], list[float]] = {}
    for one, other in pairwise(steps):
        open_ms.setdefault((one.name, other.name), []).append(max(0.0, (other.begun_ns - one.done_ns) / 1e6))
    return [Window(*pair, len(times), round(statistics.median(times), 1)) for pair, times in open_ms.items() if len(times) >= least]


def done_once(steps: Sequence[Step]) -> list[str]:
    """Which steps were done only once, while others were done again and again."""
    counts = Counter(step.name for step in steps)
    usual = max(counts, key=lambda name: counts[name], default=None)
    body = [number for number, step in enumerate(steps) if step.name == usual]
    return [step.name for step in steps[body[0] : body[-1]] if counts[step.name] == 1] if len(body) > 1 else []


def last_before(steps: Iterable[Step], at_ns: int) -> Step | None:
    """The last step that was done by then."""
    return max((step for step in steps if step.done_ns <= at_ns), key=lambda step: step.done_ns, default=None)


def runs_of(steps: Sequence[Step], name: str, before: str) -> Iterator[int]:
    """How often in a row the step came, each time before another one came."""
    count = 0
    for one, other in pairwise(steps):
        count = count + 1 if one.name == name else 0
        if one.name == name and other.name == before and other.name != name:
            yield count
