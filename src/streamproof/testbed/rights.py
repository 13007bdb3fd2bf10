"""Which rights a run needs at a Kafka that gives them, and whether it has them: asked before the run makes or breaks anything there.

A run makes topics, groups and transactional ids whose names begin with ``sp-`` and the run's name, and touches no others. So prefixed
rights (``--resource-pattern-type prefixed``) on ``sp-`` are all that it needs; where a job has the name of a topic or a group fixed, the
same right on that name. Kafka counts Describe as part of Read, Write and Delete.

Each right is asked for under a name that nothing has, ``sp-RUN.rights``: a topic is made, but only validated; records are sent to it, read
and deleted, and a group commits an offset of it; a producer takes a transactional id. The broker first says whether one may, then that
there is no such topic. So the answer is the broker's own, whatever authorizer it has, and nothing is left but an id that Kafka forgets by
itself.

Checked against: Kafka 4.1, ``StandardAuthorizer`` with ``allow.everyone.if.no.acl.found=false``; a broker without an authorizer allows all.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from streamproof.kafka import login
from streamproof.kafka.asking import asked, code_of
from streamproof.kafka.servers import Servers, access_of, librdkafka
from streamproof.testbed.process import TestbedError

PREFIX = "sp-"
ANSWER_S = 15.0
ANSWER_MS = int(ANSWER_S * 1000)
PATIENCE_S = 30.0
_REFUSALS = frozenset({29, 30, 31, 53})
"""TOPIC_, GROUP_, CLUSTER_ and TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
_GROUP_REFUSED = 30


@dataclass(frozen=True)
class Right:
    """``transactions`` says that only a job with transactions of Kafka needs it."""

    resource: str
    operation: str
    why: str
    transactions: bool = False

    @property
    def name(self) -> str:
        return f"{self.operation} on {self.resource} {PREFIX}*"

    @property
    def option(self) -> str:
        """The option of ``kafka-acls.sh`` that names such a resource."""
        return {"Topic": "topic", "Group": "group", "TransactionalId": "transactional-id"}[self.resource]


CREATE = Right("Topic", "Create", "makes the run's input and output")
DELETE = Right("Topic", "Delete", "deletes them when the run is over")
WRITE = Right("Topic", "Write", "sends the workload; the job delivers")
READ = Right("Topic", "Read", "the job reads; the drain and the second reader read what was delivered")
GROUP = Right("Group", "Read", "a job keeps its progress in a consumer group")
TRANSACTION = Right("TransactionalId", "Write", "a job writes in transactions, and a restore finishes what it left open", transactions=True)

RIGHTS = (CREATE, DELETE, WRITE, READ, GROUP, TRANSACTION)
"""All that a run needs. docs/clusters.md shows them."""


def require(servers: str, run: str, *, transactions: bool) -> None:
    """Raises TestbedError naming every right that a run lacks."""
    lacking = _Probe(servers, run).lacking(transactions=transactions)
    missing = [right.name for right in RIGHTS if right in lacking]
    if missing:
        raise TestbedError(
            f"the external Kafka: the run's user has no right to {', to '.join(missing)}. Give it "
            f"{'this right' if len(missing) == 1 else 'these rights'}, as docs/clusters.md shows. Nothing was started"
        )


class _Probe:
    """Asks for each right under a name that nothing has."""

    def __init__(self, servers: str, run: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._servers, self._name = servers, f"{PREFIX}{run}.rights"
        self._client = {**librdkafka(servers), "log_level": 0}
        self._admin = AdminClient(self._client)

    def lacking(self, *, transactions: bool) -> set[Right]:
        lacking = {CREATE} if self._refused(self._create) else set[Right]()
        if transactions and self._refused(self._take_id):
            lacking.add(TRANSACTION)
        try:
            with login.connected(Servers(self._servers.split(",")[0], access_of(self._servers)), ANSWER_S) as connection:
                codes = {DELETE: self._delete_records(connection), WRITE: self._produce(connection)}
                committed = self._commit(connection)
        except OSError as error:
            raise TestbedError(f"the external Kafka at {self._servers}: its rights could not be asked for: {error}") from error
        lacking |= {right for right, code in codes.items() if code in _REFUSALS}
        if committed == _GROUP_REFUSED:  # the broker looks at the group first
            lacking.add(GROUP)
            committed = self._read()
        return lacking | ({READ} if committed in _REFUSALS else set())

    def _refused(self, deed: Callable[[], object]) -> bool:
        """Whether the broker says that it is not allowed. Raises TestbedError."""
        from confluent_kafka import KafkaException

        try:
            asked(deed, PATIENCE_S)
        except KafkaException as error:
            if (code := code_of(error)) not in _REFUSALS:
                raise TestbedError(f"the external Kafka at {self._servers}: its rights could not be asked for: {error}") from error
            return code in _REFUSALS
        return False

    def _create(self) -> None:
        from confluent_kafka.admin import NewTopic

        (future,) = self._admin.create_topics([NewTopic(self._name, 1)], request_timeout=ANSWER_S, validate_only=True).values()
        future.result(ANSWER_S)

    def _take_id(self) -> None:
        from confluent_kafka import Producer

        producer: Producer = Producer({**self._client, "transactional.id": self._name})
        producer.init_transactions(ANSWER_S)

    # Whether one may is looked at before whether there is such a topic. A client library would not even send these requests, for it looks
    # for the topic first.

    def _delete_records(self, connection: socket.socket) -> int:
        """DeleteRecords v0: the error of the one partition. To delete the records of a topic takes the right to delete it."""
        topic = _array(_text(self._name) + _array(struct.pack(">iq", 0, 0)))
        return int(struct.unpack(">h", login.ask(connection, 21, 0, topic + struct.pack(">i", ANSWER_MS))[-2:])[0])

    def _produce(self, connection: socket.socket) -> int:
        """Produce v3, with no records: the error of the one partition."""
        topic = _array(_text(self._name) + _array(struct.pack(">ii", 0, 0)))
        answer = login.ask(connection, 0, 3, struct.pack(">hhi", -1, 1, ANSWER_MS) + topic)
        return int(struct.unpack_from(">h", answer, 4 + len(_text(self._name)) + 4 + 4)[0])

    def _commit(self, connection: socket.socket) -> int:
        """OffsetCommit v2 by a group of that name: the error of the one partition."""
        topic = _array(_text(self._name) + _array(struct.pack(">iq", 0, 0) + _text("")))
        body = _text(self._name) + struct.pack(">i", -1) + _text("") + struct.pack(">q", -1) + topic
        return int(struct.unpack(">h", login.ask(connection, 8, 2, body)[-2:])[0])

    def _read(self) -> int:
        """Fetch v4: the error of the one partition."""
        with login.connected(Servers(self._servers.split(",")[0], access_of(self._servers)), ANSWER_S) as connection:
            topic = _array(_text(self._name) + _array(struct.pack(">iqi", 0, 0, 1)))
            answer = login.ask(connection, 1, 4, struct.pack(">iiiib", -1, 0, 0, 1, 1) + topic)
            return int(struct.unpack_from(">h", answer, 4 + 4 + len(_text(self._name)) + 4 + 4)[0])


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _array(*items: bytes) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)
