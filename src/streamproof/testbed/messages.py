"""Message links: between the job and its servers, messages of Kafka's and PostgreSQL's protocols are read, held, dropped, answered late.

A link stands behind a Toxiproxy proxy, in the same process (``message_proxy``, in Go): client -> Toxiproxy -> link -> server. Links are
there only while a run asks for them; otherwise each proxy leads straight to its server.

A *rule* names messages by kind, by whom and about what, and says what happens to the n-th of them. *Events* say what happened; the answer
that a server gave, and that the client did not get, is among them. The *trace* is a file of every message that matters. Neither holds a
value: of records they know the number, of SQL the text without literals.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from streamproof.testbed import hosts
from streamproof.testbed.process import TestbedError

Protocol = Literal["kafka", "postgres"]
Side = Literal["request", "answer"]
Action = Literal["hold", "drop_request", "lose_answer", "delay_request", "delay_answer", "late_request", "error_answer"]
HTTP_TIMEOUT_S = 10.0
LONGEST_WAIT_S = 5.0

STATEMENTS = (
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "PREPARE TRANSACTION",
    "COMMIT PREPARED",
    "ROLLBACK PREPARED",
    "INSERT",
    "UPDATE",
    "DELETE",
    "MERGE",
    "COPY",
    "SELECT",
    "TRUNCATE",
    "other",
)
"""What PostgreSQL's statements are called, as messages."""


class NoSuchThing(TestbedError):
    """There is no rule of that id, or nothing is held under that number."""


@dataclass(frozen=True)
class Place:
    """A partition that a message names. ``offset`` is what a request commits, the base offset of a Produce's answer, or the high watermark
    of a Fetch's."""

    topic: str
    partition: int
    records: int | None = None
    offset: int | None = None
    error: int | None = None


@dataclass(frozen=True, kw_only=True)
class Message:
    """A request, or an answer with what its request said; also a connection that was opened or closed.

    ``at_ns`` is ``time.time_ns()``, ``monotonic_ns`` is ``time.monotonic_ns()`` of this machine. ``number`` counts the requests of a
    connection, and its answer has the same. ``errors`` are all error codes in an answer of Kafka's, ``results`` the command tags in one of
    PostgreSQL's. ``unread`` says why the content of a message is not known.
    """

    at_ns: int
    monotonic_ns: int
    link: str
    protocol: str
    connection: int
    client_port: int
    number: int
    direction: Literal["request", "answer", "opened", "closed"]
    message: str
    size_bytes: int = 0
    unread: str | None = None
    version: int | None = None
    correlation: int | None = None
    client_id: str | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    group: str | None = None
    commit: bool | None = None
    acks: int | None = None
    places: tuple[Place, ...] = ()
    errors: tuple[int, ...] = ()
    statements: tuple[str, ...] = ()
    sql: str | None = None
    results: tuple[str, ...] = ()
    sqlstate: str | None = None
    transaction: str | None = None

    @classmethod
    def parse(cls, data: dict[str, Any]) -> Self:
        values: dict[str, Any] = {**data, "places": tuple(Place(**place) for place in data.get("places", ()))}
        values |= {name: tuple(data[name]) for name in ("errors", "statements", "results") if name in data}
        return cls(**values)

    @property
    def done(self) -> bool:
        """Whether an answer says that the server did it."""
        return self.direction == "answer" and self.unread is None and not any(self.errors) and self.sqlstate is None

    @property
    def outcome(self) -> str:
        """What an answer says, in words."""
        if self.protocol == "postgres":
            return f"SQLSTATE {self.sqlstate}" if self.sqlstate else ", ".join(self.results) or "nothing"
        return self.unread or "error " + ", ".join(str(code) for code in self.errors)


@dataclass(frozen=True)
class Event:
    """What happened to a message that a rule struck; ``held`` is the number under which one is held."""

    number: int
    kind: str
    at_ns: int
    rule: str = ""
    held: int = 0
    detail: str = ""
    message: Message | None = None

    @classmethod
    def parse(cls, data: dict[str, Any]) -> Self:
        message = data.get("message")
        return cls(**{**data, "message": None if message is None else Message.parse(message)})


@dataclass(frozen=True)
class Rule:
    """Which messages are struck, and what happens to them. Patterns are regular expressions; what is empty matches everything.

    Struck are the ``nth`` message that matches, counted since the rule was made, and each ``every``-th after it, ``times`` in all (0:
    any number). ``hold`` keeps the request or the answer (``side``) until it is released or dropped. ``drop_request`` cuts the connection
    or swallows all that the client sends from there (``how``). ``lose_answer`` lets the server answer and cuts the client.
    ``late_request`` cuts the client and delivers the request after ``delay_ms``, or once it is released; before that, once the server has
    answered the next message ``until`` of the same client and transaction. ``error_answer`` gives ``code``,
    instead of asking the server or (``forward``) instead of its answer; with ``fatal`` PostgreSQL's connection ends.
    """

    id: str
    message: str
    action: Action
    links: tuple[str, ...] = ()
    client_id: str = ""
    transactional_id: str = ""
    topic: str = ""
    sql: str = ""
    commit: bool | None = None
    nth: int = 1
    every: int = 0
    times: int = 0
    side: Side | Literal[""] = ""
    how: Literal["cut", "black_hole", ""] = ""
    delay_ms: int = 0
    until: str = ""
    code: str = ""
    fatal: bool = False
    forward: bool = False


@dataclass(frozen=True)
class Held:
    """A message that waits to be released or dropped."""

    id: int
    rule: str
    side: Side
    message: Message


@dataclass(frozen=True)
class Link:
    """A link by its proxy's name: it listens at one address and leads to another."""

    name: str
    protocol: Protocol
    upstream: str
    listen: str


@dataclass(frozen=True)
class State:
    links: tuple[Link, ...]
    rules: tuple[str, ...]
    held: tuple[Held, ...]
    trace: str | None
    last_event: int


class Messages:
    """The message links of one proxy server. Each method raises TestbedError when the server does not answer, or refuses."""

    def __init__(self, port: int) -> None:
        self._url = f"http://{hosts.of('toxiproxy')}:{port}/messages"

    def _ask(self, verb: str, path: str = "", body: dict[str, Any] | None = None, wait_s: float = 0.0) -> Any:
        import requests

        with requests.Session() as session:
            session.trust_env = False  # it is on this machine: no proxy of the environment leads to it
            try:
                answer = session.request(verb, self._url + path, json=body, timeout=HTTP_TIMEOUT_S + wait_s)
            except requests.RequestException as error:
                raise TestbedError(f"the message links do not answer ({error}). Is the testbed up? `streamproof testbed status`") from error
        try:
            result = answer.json()
        except ValueError:
            result = None
        if answer.ok:
            return result
        if not isinstance(result, dict):
            raise TestbedError(
                f"the testbed's Toxiproxy has no message links ({answer.status_code}): another version started it. "
                "`streamproof testbed down`, then `up`"
            )
        kind = NoSuchThing if answer.status_code == 404 else TestbedError
        raise kind(f"message links: {result['error']}")

    def state(self) -> State:
        """What there is; the trace is on its disk up to now."""
        state = self._ask("GET")
        trace = state["trace"]
        if trace is not None and "error" in trace:
            raise TestbedError(f"the trace {trace['path']} has a hole: {trace['error']}")
        return State(
            tuple(Link(**link) for link in state["links"]),
            tuple(rule["id"] for rule in state["rules"]),
            tuple(Held(**{**held, "message": Message.parse(held["message"])}) for held in state["held"]),
            None if trace is None else trace["path"],
            state["last_event"],
        )

    def link(self, name: str, protocol: Protocol, upstream: str) -> Link:
        """Put a link behind the proxy ``name``, which leads to ``upstream``. The proxy's connections end."""
        return Link(**self._ask("POST", "/links", {"name": name, "protocol": protocol, "upstream": upstream}))

    def unlink(self, name: str) -> None:
        """Lead the proxy straight to its server again; nothing happens when it does."""
        self._ask("DELETE", f"/links/{name}")

    def arm(self, rule: Rule) -> None:
        """From now on messages are counted for the rule. A message is struck by the first rule that fits."""
        self._ask("POST", "/rules", {name: value for name, value in asdict(rule).items() if value not in ("", None, ())})

    def disarm(self, rule: str) -> None:
        """Take the rule away, with those that belong to it, and release what they hold; nothing happens when there is none."""
        for each in [one["id"] for one in self._ask("GET")["rules"] if belongs(one["id"], rule)]:
            with contextlib.suppress(NoSuchThing):
                self._ask("DELETE", f"/rules/{each}")

    def release(self, held: int) -> None:
        """Let a held message go on. Raises NoSuchThing when somebody has decided about it before."""
        self._ask("POST", f"/held/{held}/release")

    def drop(self, held: int) -> None:
        """Discard a held message and cut its connection. Raises NoSuchThing when somebody has decided about it before."""
        self._ask("POST", f"/held/{held}/drop")

    def events(self, after: int = 0, rule: str = "", wait_s: float = 0.0) -> list[Event]:
        """The events behind the number ``after``, of one rule or of all; waits for the first one, at most ``wait_s``."""
        wait_s = min(wait_s, LONGEST_WAIT_S)
        answer = self._ask("GET", f"/events?after={after}&rule={rule}&wait_s={wait_s:g}", wait_s=wait_s)
        return [Event.parse(event) for event in answer["events"]]

    def trace(self, path: Path, also: Collection[str] = ()) -> None:
        """Append every message that matters to the file at ``path``. Fetch, Heartbeat, Metadata and other messages that change nothing at a
        server are left out, but for those in ``also``."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._ask("POST", "/trace", {"path": str(path.resolve()), "also": sorted(also)})

    def end_trace(self) -> None:
        """Raises TestbedError when the trace could not be written whole."""
        self._ask("DELETE", "/trace")

    def clear(self) -> None:
        """Take away every rule, release what is held, end the trace, lead every proxy straight again."""
        self._ask("DELETE")


def belongs(rule: str, to: str) -> bool:
    """Whether a rule is the one of that id, or one that was numbered after it: a fault that waits for several messages has several."""
    return rule == to or rule.startswith(f"{to}.")


def read_trace(path: Path) -> Iterator[Message]:
    """The messages of a trace in their order. A last line that was cut off is left out."""
    with path.open() as lines:
        for line in lines:
            if line.endswith("\n"):
                yield Message.parse(json.loads(line))


__all__ = [
    "STATEMENTS",
    "Action",
    "Event",
    "Held",
    "Link",
    "Message",
    "Messages",
    "NoSuchThing",
    "Place",
    "Protocol",
    "Rule",
    "Side",
    "State",
    "belongs",
    "read_trace",
]
