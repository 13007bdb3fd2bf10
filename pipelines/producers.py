"""Transactional producers of a job's tasks: how one is set up, and a stock of them that are ready before they are needed."""

from __future__ import annotations

import uuid
from concurrent.futures import Future, ThreadPoolExecutor

from pipelines.job import Job
from pipelines.librdkafka import KafkaFailed, TransactionalProducer

REQUEST_S = 30.0
STOCK = 1


def initialised(job: Job, transactional_id: str) -> TransactionalProducer:
    """A producer that holds ``transactional_id``: whoever held it before is fenced, what that one left open is aborted.

    It asks twice where its topic is before it asks for its id: the first answer comes over a bootstrap connection, which librdkafka then
    closes; the second one waits for a connection that stays. Without any at hand, librdkafka looks for the coordinator 500 ms later.
    """
    producer = TransactionalProducer(
        {
            "bootstrap.servers": job.task_bootstrap,
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
        producer.init_transactions(REQUEST_S)
    except BaseException:  # whatever it was: its threads and connections must not stay
        producer.close()
        raise
    return producer


class Stock:
    """Producers under ids that were never used before (``prefix`` and a random part), made in the background, each used once.

    Spark reuses a task's Python worker, so the worker makes the next task's producer while this task runs. One that is never used has no
    transaction, and leaves nothing behind.
    """

    def __init__(self, job: Job, prefix: str) -> None:
        self._job, self._prefix = job, prefix
        self._pool = ThreadPoolExecutor(STOCK, thread_name_prefix="stock-of-producers")
        self._ready: list[Future[TransactionalProducer]] = []

    def take(self) -> TransactionalProducer:
        """A producer, made now if there is none. Begins to fill the stock up."""
        taken: TransactionalProducer | None = None
        ready = next((one for one in self._ready if one.done()), self._ready[0] if self._ready else None)
        if ready is not None:
            self._ready.remove(ready)
            try:
                taken = ready.result(REQUEST_S)
            except (KafkaFailed, TimeoutError):  # it failed in the background, perhaps long ago
                taken = None
        taken = taken or self._make()
        while len(self._ready) < STOCK:
            self._ready.append(self._pool.submit(self._make))
        return taken

    def put_away(self, producer: TransactionalProducer) -> None:
        """Close a used producer, without waiting for it."""
        self._pool.submit(producer.close)

    def _make(self) -> TransactionalProducer:
        return initialised(self._job, f"{self._prefix}{uuid.uuid4().hex}")
