"""Which rights a run needs at a Kafka that gives them, and whether it has them: asked before the run makes or breaks anything there.

A run makes topics, groups and transactional ids whose names begin with ``sp-`` and the run's name, and touches no others. So prefixed
rights (``--resource-pattern-type prefixed``) on ``sp-`` are all that it needs; where a job has the name of a topic or a group fixed, the
same right on that name. Kafka counts Describe as part of Read, Write and Delete.

Each right is asked for under a name of the run's own, ``sp-RUN.rights``: a topic is made and deleted again, and the broker says who may
read and write it; a group commits an offset of it; a producer takes a transactional id. So the answer is the broker's own, whatever
authorizer it has. What is left of that is a group without offsets and a transactional id, which Kafka forgets by itself.

Checked against: Kafka 4.1, ``StandardAuthorizer`` with ``allow.everyone.if.no.acl.found=false``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from streamproof.kafka.asking import TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION, asked, code_of
from streamproof.kafka.servers import librdkafka
from streamproof.testbed.process import TestbedError

PREFIX = "sp-"
ANSWER_S = 15.0
PATIENCE_S = 30.0
_REFUSALS = frozenset({29, 30, 31, 53})
"""TOPIC_, GROUP_, CLUSTER_ and TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""


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
    """Raises TestbedError naming every right that a run lacks, as far as it can be asked for; what needs a topic is not where none may be
    made or deleted."""
    lacking = _Probe(servers, run).lacking(transactions=transactions)
    missing = [right.name for right in RIGHTS if right in lacking]
    if missing:
        raise TestbedError(
            f"the external Kafka: the run's user has no right to {', to '.join(missing)}. Give it "
            f"{'this right' if len(missing) == 1 else 'these rights'}, as docs/clusters.md shows. Nothing was started"
        )


class _Probe:
    def __init__(self, servers: str, run: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._servers, self._name = servers, f"{PREFIX}{run}.rights"
        self._client = {**librdkafka(servers), "log_level": 0}
        self._admin = AdminClient(self._client)

    def lacking(self, *, transactions: bool) -> set[Right]:
        lacking: set[Right] = set()
        if transactions and self._refused(self._take_id):
            lacking.add(TRANSACTION)
        # Of a topic that is not there the broker first says whether it might be deleted, or made.
        lacking |= {DELETE} if self._refused(self._delete, but=UNKNOWN_TOPIC_OR_PARTITION) else set()
        lacking |= {CREATE} if self._refused(lambda: self._create(only_validate=True), but=TOPIC_ALREADY_EXISTS) else set()
        if lacking & {CREATE, DELETE}:
            return lacking
        self._refused(self._create, but=TOPIC_ALREADY_EXISTS)
        try:
            return lacking | self._on_the_topic()
        finally:
            self._refused(self._delete, but=UNKNOWN_TOPIC_OR_PARTITION)

    def _on_the_topic(self) -> set[Right]:
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import AclOperation

        def described() -> Any:
            (future,) = self._admin.describe_topics(
                TopicCollection([self._name]), include_authorized_operations=True, request_timeout=ANSWER_S
            ).values()
            return future.result(ANSWER_S)

        allowed = asked(described, PATIENCE_S).authorized_operations
        lacking = {right for right, operation in ((WRITE, AclOperation.WRITE), (READ, AclOperation.READ)) if operation not in allowed}
        if READ not in lacking and self._refused(self._commit):  # to commit an offset of a topic one must be allowed to read it
            lacking.add(GROUP)
        return lacking

    def _refused(self, deed: Callable[[], object], but: int | None = None) -> bool:
        """Whether the broker says that it is not allowed. ``but`` is an error that says that it is. Raises TestbedError."""
        from confluent_kafka import KafkaException

        try:
            asked(deed, PATIENCE_S)
        except KafkaException as error:
            code = code_of(error)
            if code not in _REFUSALS and code != but:
                raise TestbedError(f"the external Kafka at {self._servers}: its rights could not be asked for: {error}") from error
            return code in _REFUSALS
        return False

    def _create(self, *, only_validate: bool = False) -> None:
        from confluent_kafka.admin import NewTopic

        (future,) = self._admin.create_topics([NewTopic(self._name, 1)], request_timeout=ANSWER_S, validate_only=only_validate).values()
        future.result(ANSWER_S)

    def _delete(self) -> None:
        (future,) = self._admin.delete_topics([self._name], request_timeout=ANSWER_S).values()
        future.result(ANSWER_S)

    def _take_id(self) -> None:
        from confluent_kafka import Producer

        producer: Producer = Producer({**self._client, "transactional.id": self._name})
        producer.init_transactions(ANSWER_S)

    def _commit(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        with closing(Consumer({**self._client, "group.id": self._name, "enable.auto.commit": False})) as consumer:
            consumer.commit(offsets=[TopicPartition(self._name, 0, 0)], asynchronous=False)
