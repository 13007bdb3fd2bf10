"""What faults of single messages share: which message is struck, what was seen of it, and what its client did next.

A message is found by its kind, counted from the moment at which the fault is injected. A message link reads it on its way (see
``streamproof.testbed.messages``), so nothing is left to timing. The evidence is the link's own record: the answer that the server gave is
read also where the client never gets it. What the client did next comes from the run's trace.

Encrypted connections cannot be read: a job that insists on TLS has no messages that could be struck.
"""

from __future__ import annotations

import json
import random
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

import psutil
from pydantic import Field, ValidationInfo, field_validator

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import DriverExited
from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext, Unconditional
from streamproof.faults.network import kafka_link
from streamproof.faults.network.kafka_link import OfRole
from streamproof.jobs import profile as jobs
from streamproof.jobs.failpoint import Site
from streamproof.jobs.profile import KAFKA, POSTGRES, JobProfile
from streamproof.testbed.embedded import POSTGRES_PROXY, Role, Testbed
from streamproof.testbed.messages import STATEMENTS, Event, Message, Rule, belongs

STRIKE_S = 60.0
SEEN_S = 30.0
NEXT_S = 60.0
GOES_ON_S = 120.0
LOOK_S = 0.1

MessageName = Literal[
    "Produce",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
    "OffsetCommit",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "Fetch",
    "Metadata",
    "FindCoordinator",
    "BEGIN",
    "INSERT",
    "UPDATE",
    "DELETE",
    "MERGE",
    "COPY",
    "TRUNCATE",
    "SELECT",
    "COMMIT",
    "ROLLBACK",
    "PREPARE TRANSACTION",
    "COMMIT PREPARED",
    "ROLLBACK PREPARED",
]


class MessageParameters(OfRole):
    message: MessageName = Field("Produce", description="Which message: a request of Kafka's protocol, or a statement of PostgreSQL")
    nth: int = Field(1, ge=1, le=1000, description="Which of them, counted from the moment of the injection")
    topic: Literal["input", "output"] | None = Field(None, description="Only one that names this topic of the run")
    sql: str | None = Field(None, min_length=1, max_length=200, description="Only a statement whose text this regular expression finds")

    @field_validator("topic", "sql")
    @classmethod
    def _of_that_server(cls, value: str | None, info: ValidationInfo) -> str | None:
        message = info.data.get("message")  # not there when it was refused itself
        if value is not None and message is not None and (message in STATEMENTS) != (info.field_name == "sql"):
            raise ValueError(f"{message} has no {info.field_name}: leave it out")
        if value is not None and info.field_name == "sql":
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(f"expected a regular expression, came {value!r}: {error}") from error
        return value


class MessageFault(Unconditional):
    """Subclasses say what the rule does, and what was to be seen of it."""

    name: str
    summary: str
    target = "a message between the job and Kafka, or PostgreSQL"
    parameters_model: type[Parameters] = MessageParameters
    occupies = frozenset({"the link to kafka"})
    sites: frozenset[Site] = frozenset()
    from_the_start = True
    client_is_answered = False
    """Whether the client gets the server's answer in the end: then the same message from it is another one, and no retry."""

    def link(self, parameters: Any) -> str:
        """The server to which the message goes."""
        return POSTGRES if parameters.message in STATEMENTS else KAFKA

    def needs(self, parameters: Any) -> frozenset[str]:
        return frozenset({f"the link to {self.link(parameters)}"})

    def reads(self, parameters: Any) -> frozenset[str]:
        return frozenset({self.link(parameters)})

    def outside(self, parameters: Any) -> frozenset[Role] | None:
        return frozenset() if self.link(parameters) == POSTGRES else None

    def batches(self, parameters: Any) -> int:
        return 3

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Not for chance: which messages a job sends is known only once it was seen at work."""
        return None

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        super().check(profile, parameters)
        asked = self.parameters_model.model_validate(parameters)
        if (server := self.link(asked)) not in profile.links:
            raise ValueError(f"{self.name}: a job with {profile.name!r} has no link to {server}")
        if server == POSTGRES and parameters.get("role", "pipeline") != "pipeline":
            raise ValueError(f"{self.name}: driver and executors share their way to PostgreSQL: leave `role` out")
        kafka_link.check(self.name, profile, parameters)

    def rule(self, parameters: Any) -> Rule:
        """What is done to the message. Its id, links and topic are filled in by :meth:`aim`."""
        raise NotImplementedError

    def effects(self, run: RunContext, parameters: Any, target: dict[str, Any], struck: Message) -> list[EvidenceCheck]:
        """That it was done, and that the server did the message's work or did not."""
        raise NotImplementedError

    def aim(self, run: RunContext, parameters: Any) -> dict[str, Any]:
        postgres = self.link(parameters) == POSTGRES
        links = [POSTGRES_PROXY] if postgres else run.testbed.kafka_proxies(parameters.role)
        return {"role": self.target, "links": links, "rule": f"{self.name}-{uuid.uuid4().hex[:8]}"}

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        topics = {"input": run.job.input_topic, "output": run.job.output_topic, None: ""}
        asked = self.rule(parameters)
        target["after"] = run.testbed.messages.state().last_event  # what was traced so far is in the file now
        target["traced_bytes"] = run.folder.messages.stat().st_size
        run.testbed.messages.arm(
            replace(asked, id=target["rule"], links=tuple(target["links"]), topic=topics[parameters.topic], sql=parameters.sql or "")
        )
        what = f"{parameters.message} number {parameters.nth}" if parameters.nth > 1 else f"a {parameters.message}"
        try:
            struck = self.wait(run, target, what, "matched", STRIKE_S)
        except FaultError as error:
            raise FaultError(f"{error}. Meanwhile the job sent {self._came(run, target)}") from error
        assert struck.message is not None
        target["struck"] = _shown(struck.message)

    def _came(self, run: RunContext, target: dict[str, Any]) -> str:
        names = Counter(message.message for message in traced(run, target) if message.direction == "request")
        return ", ".join(f"{count} {name}" for name, count in names.most_common()) or "nothing that could be read"

    def evidence(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> list[EvidenceCheck]:
        struck = self.event(run, target, "matched", 0.0)
        assert struck is not None
        assert struck.message is not None
        checks = self.effects(run, parameters, target, struck.message)
        return [*checks, self.next_step(run, target, struck.message), run.goes_on(GOES_ON_S)]

    def event(self, run: RunContext, target: dict[str, Any], kind: str, wait_s: float = SEEN_S) -> Event | None:
        """The first event of that kind, None when there is none in time."""
        try:
            return self.wait(run, target, kind, kind, wait_s)
        except FaultError:
            return None

    def wait(self, run: RunContext, target: dict[str, Any], what: str, kind: str, wait_s: float) -> Event:
        """The first event of that kind. Raises FaultError when there is none in time."""

        def seen() -> Event | None:
            events = run.testbed.messages.events(target["after"], target["rule"])
            return next((event for event in events if event.kind == kind), None)

        event: Event = run.wait_for(what, seen, wait_s)
        return event

    def did(self, run: RunContext, target: dict[str, Any], by: str) -> EvidenceCheck:
        """That the server did what the message asked for: its own answer says so."""
        answer = self.answer(run, target)
        done = answer is not None and answer.done
        return EvidenceCheck(f"the server did it{by}", done, f"it answered {'no answer' if answer is None else answer.outcome}")

    def answer(self, run: RunContext, target: dict[str, Any]) -> Message | None:
        """What the server answered; None when nothing came in time."""
        answered = self.event(run, target, "answered")
        return None if answered is None else answered.message

    def did_not(self, run: RunContext, target: dict[str, Any]) -> EvidenceCheck:
        """That the server never got it: no answer to it came."""
        answered = self.event(run, target, "answered", 0.0)
        return EvidenceCheck("the server did not get it", answered is None, "no answer came" if answered is None else "it answered")

    def ended(self, run: RunContext, target: dict[str, Any], struck: Message) -> EvidenceCheck:
        """That the connection is no more."""

        def closed() -> bool:
            time.sleep(LOOK_S)
            return any(message.direction == "closed" and message.connection == struck.connection for message in traced(run, target))

        return EvidenceCheck("the client's connection was cut", run.eventually(closed, SEEN_S), f"from port {struck.client_port}")

    def next_step(self, run: RunContext, target: dict[str, Any], struck: Message) -> EvidenceCheck:
        """What the client did next: it sent the message again, sent others, or ended."""
        seen: list[str] = []

        def acted() -> bool:
            time.sleep(LOOK_S)
            next_message = next_step(list(traced(run, target)), struck, answered=self.client_is_answered)
            seen[:] = filter(None, [ended_since(run, struck), next_message])
            return bool(seen)

        found = run.eventually(acted, NEXT_S)
        return EvidenceCheck("what the client did next was seen", found, "; ".join(seen) if found else f"nothing within {NEXT_S:.0f} s")

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        return [disarmed(testbed, target["rule"])]


def disarmed(testbed: Testbed, rule: str) -> EvidenceCheck:
    """Take a rule away, with those that belong to it, let go what they hold, and read back. May be repeated."""
    testbed.messages.disarm(rule)
    state = testbed.messages.state()
    held = [held.id for held in state.held if belongs(held.rule, rule)]
    gone = not any(belongs(each, rule) for each in state.rules) and not held
    return EvidenceCheck("its rule is gone, and nothing is held any more", gone, f"{len(state.rules)} rules, {len(held)} held")


def client_of(run: RunContext, message: Message) -> tuple[jobs.Role, psutil.Process] | None:
    """The process of the job that has the message's connection, and its role; None when that is closed, or not the job's."""
    for role in sorted(run.profile.roles):  # the Python workers before the executors that they are children of
        for process in run.engine.processes(run.job, role):
            try:
                connections = process.net_connections("tcp")
            except psutil.Error:
                continue
            if any(connection.laddr.port == message.client_port for connection in connections):
                return role, process
    return None


def traced(run: RunContext, target: dict[str, Any]) -> Iterator[Message]:
    """What was traced since the fault was injected, but for a line that is being written."""
    run.testbed.messages.state()  # writes what is buffered
    with run.folder.messages.open("rb") as trace:
        if (begin := target["traced_bytes"]) > 0:  # it may lie within a line that was being written then
            trace.seek(begin - 1)
            trace.readline()
        for line in trace:
            if line.endswith(b"\n"):
                yield Message.parse(json.loads(line))


def _same(message: Message, struck: Message) -> bool:
    """Whether both are the same message, as far as that can be seen: of the same kind, client and transaction."""
    return (message.message, message.client_id, message.transactional_id, message.sql) == (
        struck.message,
        struck.client_id,
        struck.transactional_id,
        struck.sql,
    )


def next_step(trace: list[Message], struck: Message, *, answered: bool) -> str | None:
    """What the client of a message sent next, in words; None when it sent nothing. A message like it is a retry, unless the client was
    ``answered``."""
    later = [
        message
        for message in trace
        if message.monotonic_ns > struck.monotonic_ns and message.direction == "request" and message.client_id == struck.client_id
    ]
    again = next((message for message in later if _same(message, struck)), None)
    if again is not None and not answered:
        by = "the same connection" if again.connection == struck.connection else "another connection"
        answers = (message for message in trace if message.direction == "answer")
        answer = next((a for a in answers if (a.connection, a.number) == (again.connection, again.number)), None)
        said = "no answer so far" if answer is None else f"answered {answer.outcome}"
        after_ms = (again.monotonic_ns - struck.monotonic_ns) / 1e6
        return f"{again.message} again over {by}, {after_ms:.0f} ms later, {said}"
    if not later:
        return None
    return "it sent " + ", ".join(message.message for message in later[:4])


def ended_since(run: RunContext, struck: Message) -> str | None:
    ended = run.folder.journal.last(DriverExited)
    return None if ended is None or datetime.fromisoformat(ended.at).timestamp() * 1e9 < struck.at_ns else f"start {ended.start} ended"


def _shown(message: Message) -> dict[str, Any]:
    """What the journal keeps of a message."""
    kept = ("message", "link", "connection", "client_port", "client_id", "transactional_id", "sql", "at_ns", "monotonic_ns")
    return {name: value for name in kept if (value := getattr(message, name)) is not None}


__all__ = ["MessageFault", "MessageName", "MessageParameters", "client_of", "disarmed", "ended_since", "next_step", "traced"]
