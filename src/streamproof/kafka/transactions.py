"""Kafka transactions that one process prepares and another finishes.

A transaction is *prepared* once its producer has begun it, produced, and flushed everything: all its records are on the broker and
nothing is left to do but EndTxn. The broker does not care who sends that: EndTxn(transactional id, producer id, epoch) is accepted
from anyone who names all three rightly. So executors prepare and the driver decides.

Checked against: Kafka's transaction coordinator (``TransactionCoordinator.endTransaction``) and a real 4.1 broker. Its answers to an
EndTxn(commit): ONGOING commits; COMPLETE_COMMIT answers "no error" (idempotent); PREPARE_COMMIT answers CONCURRENT_TRANSACTIONS (ask
again); COMPLETE_ABORT answers INVALID_TXN_STATE; a transaction that timed out or was fenced answers with a wrong-epoch error.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

from streamproof.kafka.asking import asked, retriable
from streamproof.kafka.servers import kafka_python

REQUEST_MS = 15_000
METADATA_MS = 5_000
RECONNECT_MS = 1_000
FINISH_S = 30.0
POLL_S = 0.01
_CONCURRENT_TRANSACTIONS = 51  # the coordinator is at it


class TransactionLost(RuntimeError):
    """A transaction that was to be committed no longer can be: it timed out, was fenced, or is unknown."""


class CoordinatorBusy(RuntimeError):
    """A coordinator has not said for a long time what has become of a transaction; it may be asked again."""


@dataclass(frozen=True)
class Prepared:
    """A prepared transaction: everything that EndTxn needs."""

    transactional_id: str
    producer_id: int
    epoch: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Coordinator:
    """Talks to the transaction coordinators of a cluster. A context manager; every wait is bounded."""

    def __init__(self, bootstrap: str) -> None:
        from kafka.admin import KafkaAdminClient

        self._admin = KafkaAdminClient(
            **kafka_python(bootstrap),
            client_id="streamproof-coordinator",
            request_timeout_ms=REQUEST_MS,
            # Brokers die and come back: who is there is asked again, and who was away is tried again, within seconds.
            metadata_max_age_ms=METADATA_MS,
            reconnect_backoff_max_ms=RECONNECT_MS,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._admin.close()

    def describe(self, transactional_ids: Iterable[str]) -> list[Prepared]:
        """Look up producer id and epoch of transactions that must be prepared.

        Raises TransactionLost naming the first that is not ongoing (its timeout passed, it was fenced, or it never was).
        """
        from kafka.errors import TransactionalIdNotFoundError

        ids = list(transactional_ids)
        try:
            descriptions = self._retrying(lambda: self._admin.describe_transactions(ids)) if ids else {}
        except TransactionalIdNotFoundError as error:
            raise TransactionLost(f"a transaction is unknown to its coordinator, expected Ongoing: {error}") from error
        prepared = []
        for name in ids:
            at = descriptions.get(name)
            if at is None:
                raise TransactionLost(f"transaction {name} is unknown to its coordinator, expected Ongoing")
            if at.state != "Ongoing":
                raise TransactionLost(
                    f"transaction {name} is {at.state.value}, expected Ongoing: it was aborted before it could be decided"
                )
            prepared.append(Prepared(name, at.producer_id, at.producer_epoch))
        return prepared

    def holder(self, transactional_id: str) -> tuple[Prepared, str]:
        """Who holds the id now, and the state of its transaction, whatever it is."""
        at = self._retrying(lambda: self._admin.describe_transactions([transactional_id]))[transactional_id]
        return Prepared(transactional_id, at.producer_id, at.producer_epoch), str(at.state.value)

    def ongoing(self, prefix: str) -> list[Prepared]:
        """The open transactions whose transactional id starts with ``prefix``."""
        listed = self._retrying(lambda: self._admin.list_transactions(state_filters=["Ongoing"]))
        ids = [row.transactional_id for rows in listed.values() for row in rows if row.transactional_id.startswith(prefix)]
        descriptions = self._retrying(lambda: self._admin.describe_transactions(ids)) if ids else {}
        return [Prepared(name, at.producer_id, at.producer_epoch) for name, at in descriptions.items() if at.state == "Ongoing"]

    def commit(self, transactions: Iterable[Prepared]) -> None:
        """Commit each, waiting while the broker is still at it.

        Raises TransactionLost when one cannot be committed any more, CoordinatorBusy when the broker does not come to an end with one.
        """
        for transaction in transactions:
            code = self._end(transaction, commit=True)
            if code != 0:
                raise TransactionLost(
                    f"transaction {transaction.transactional_id} was decided to commit, but the broker answers {_name(code)}: "
                    "it timed out or was fenced, its records are not visible"
                )

    def abort(self, transactions: Iterable[Prepared]) -> list[str]:
        """Abort each that still can be; returns the ids that were. One that is finished or fenced already is left alone."""
        return [transaction.transactional_id for transaction in transactions if self._end(transaction, commit=False) == 0]

    def _end(self, transaction: Prepared, *, commit: bool) -> int:
        from kafka.protocol.producer.transaction import EndTxnRequest

        deadline = time.monotonic() + FINISH_S
        while True:
            request = EndTxnRequest(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                committed=commit,
                max_version=1,
            )
            ask = functools.partial(self._admin._manager.run, self._send, request, transaction.transactional_id)
            code = int(self._retrying(ask).error_code)
            if not retriable(code):
                return code
            if time.monotonic() > deadline:
                raise CoordinatorBusy(f"transaction {transaction.transactional_id}: the broker answers {_name(code)} for {FINISH_S:.0f} s")
            if code != _CONCURRENT_TRANSACTIONS:
                self._look_again()
            time.sleep(POLL_S)

    async def _send(self, request: Any, transactional_id: str) -> Any:
        from kafka.protocol.metadata import CoordinatorType

        nodes = await self._admin._find_coordinator_ids([transactional_id], key_type=CoordinatorType.TRANSACTION)
        return await self._admin._manager.send(request, node_id=nodes[transactional_id])

    def _retrying(self, call: Any) -> Any:
        """Ask again while the coordinator loads or is being elected: when a broker is new, and when one has died."""
        from kafka.errors import KafkaError, UnknownBrokerIdError

        def once() -> Any:
            try:
                return call()
            except KafkaError:
                self._look_again()
                raise

        return asked(once, FINISH_S, also=(UnknownBrokerIdError,))  # a broker died since it was listed

    def _look_again(self) -> None:
        """Forget which broker coordinates what: with a broker that dies it moves, and kafka-python goes on asking the one that it knows."""
        cluster = self._admin._manager.cluster
        cluster._coordinators.clear()
        cluster.request_update()


def _name(code: int) -> str:
    from kafka.errors import for_code

    return re.sub(r"Error$", "", for_code(code).__name__) + f" ({code})"
