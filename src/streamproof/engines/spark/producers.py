"""Transactional producers of a job's tasks: how one is set up, and a stock of them that are ready before they are needed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from streamproof.engines.spark.job import SparkJob
from streamproof.kafka.librdkafka import KafkaFailed, TransactionalProducer
from streamproof.kafka.servers import librdkafka

REQUEST_S = 30.0
STOCK = 1


def connected(job: SparkJob, transactional_id: str) -> TransactionalProducer:
    """A producer that has its connection, and has not taken its id yet: no producer is fenced, no transaction is aborted.

    It asks twice where its topic is: the first answer comes over a bootstrap connection, which librdkafka then closes; the second one
    waits for a connection that stays. Without any at hand, librdkafka looks for the id's coordinator 500 ms later.
    """
    producer = TransactionalProducer(
        {
            **librdkafka(job.task_kafka),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": job.transaction_timeout_ms,
            "linger.ms": 5,
            "queue.buffering.max.messages": 200_000,
            "partitioner": "murmur2_random",  # Kafka's own default, so that a key stays in its partition whichever client writes it
            "reconnect.backoff.ms": 5,
            "retry.backoff.ms": 10,
            "log_level": 3,
        }
    )
    try:
        for _ in range(2):
            producer.connect(job.output_topic, REQUEST_S)
    except BaseException:  # whatever it was: its threads and connections must not stay
        producer.close()
        raise
    return producer


def take_id(producer: TransactionalProducer) -> TransactionalProducer:
    """The producer, which now holds its id: whoever held it before is fenced, what that one left open is aborted. Closed on failure."""
    try:
        producer.init_transactions(REQUEST_S)
    except BaseException:  # as above
        producer.close()
        raise
    return producer


class Stock:
    """Producers that are made in the background, each for one transaction.

    Spark reuses a task's Python worker, so the worker makes the next task's producer while this task runs. One that is never used has no
    transaction, and leaves nothing behind. ``make`` must not take an id that another producer may hold at that time.

    One transaction and no more: librdkafka keeps producer id and epoch from one transaction to the next, and refuses to initialise
    a producer twice. An EndTxn of the last transaction that arrives late would then end the next one (docs/upstream).
    """

    def __init__(self, make: Callable[[], TransactionalProducer]) -> None:
        self._make = make
        self._pool = ThreadPoolExecutor(STOCK, thread_name_prefix="stock-of-producers")
        self._ready: list[Future[TransactionalProducer]] = []

    def take(self) -> TransactionalProducer:
        """A producer, made now if there is none. Begins to fill the stock up."""
        producer: TransactionalProducer | None = None
        ready = next((future for future in self._ready if future.done()), self._ready[0] if self._ready else None)
        if ready is not None:
            self._ready.remove(ready)
            try:
                producer = ready.result(REQUEST_S)
            except (KafkaFailed, TimeoutError):  # it failed in the background, perhaps long ago
                producer = None
        producer = producer or self._make()
        while len(self._ready) < STOCK:
            self._ready.append(self._pool.submit(self._make))
        return producer

    def put_away(self, producer: TransactionalProducer) -> None:
        """Close a used producer, without waiting for it."""
        self._pool.submit(producer.close)

    def close(self) -> None:
        """Close what is in stock; there must be no call after this one."""
        self._pool.shutdown()
        for ready in self._ready:
            with suppress(KafkaFailed):  # it was never made
                ready.result().close()
