"""The sink of ``two_phase_commit`` as a Spark data source: tasks prepare, the driver decides. The protocol is told in ``two_phase_commit``.

Apart from the strategy so that naming the strategy does not import Spark.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from delivery.folder import RunFolder
from pipelines.failpoints import reach
from pipelines.job import Job
from pipelines.strategies.two_phase_commit import (
    AFTER_COMMIT,
    AFTER_DECISION,
    AFTER_PREPARE,
    BEFORE_DECISION,
    BETWEEN_COMMITS,
    decision_log,
)
from pipelines.transactions import Coordinator

if TYPE_CHECKING:
    from pyarrow import RecordBatch

REQUEST_S = 30.0
Headers = list[tuple[str, str | bytes | None]]


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task tells the driver: the transaction that it prepared, None when it had nothing to write."""

    transactional_id: str | None
    attempt: int


class KafkaTwoPhaseSink(DataSource):
    """The strategy's sink as a Spark data source; options: ``run`` (the run's folder) and ``start`` (number of the driver's start)."""

    @classmethod
    def name(cls) -> str:
        return "kafka_two_phase"

    def streamWriter(self, schema: Any, overwrite: bool) -> TwoPhaseWriter:
        return TwoPhaseWriter(Job.read(RunFolder(self.options["run"]), int(self.options["start"])))


class TwoPhaseWriter(DataSourceStreamArrowWriter):
    def __init__(self, job: Job) -> None:
        self.job = job

    def write(self, iterator: Iterator[RecordBatch]) -> TaskMessage:
        """Runs in a task: prepare one transaction with the task's records."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId"))  # type: ignore[arg-type]
        attempt = context.attemptNumber()
        if decision_log(self.job).read(batch) is not None:
            return TaskMessage(None, attempt)
        headers: Headers = [("streamproof", f"{self.job.start}.{batch}.{attempt}".encode())]
        transaction: _Transaction | None = None
        for records in iterator:
            if records.num_rows:
                transaction = transaction or _Transaction(self.job)
                transaction.produce(records, headers)
        if transaction is None:
            return TaskMessage(None, attempt)
        transaction.prepare()
        reach(self.job.run, AFTER_PREPARE.name, batch, attempt=attempt, partition=context.partitionId())
        return TaskMessage(transaction.name, attempt)

    def commit(self, messages: list[TaskMessage | None], batchId: int) -> None:  # type: ignore[override]
        """Runs at the driver, once every task has prepared: decide, then carry the decision out."""
        log, run = decision_log(self.job), self.job.run
        named = [message for message in messages if message is not None]
        ids = [message.transactional_id for message in named if message.transactional_id is not None]
        with Coordinator(self.job.bootstrap) as coordinator:
            decided = log.read(batchId)
            if decided is None:
                transactions = coordinator.describe(ids)
                reach(run, BEFORE_DECISION.name, batchId)
                log.decide(batchId, transactions)
                decided = transactions
                reach(run, AFTER_DECISION.name, batchId)
            coordinator.commit(decided[:1])
            reach(run, BETWEEN_COMMITS.name, batchId)
            coordinator.commit(decided[1:])
            log.finish(batchId)
            reach(run, AFTER_COMMIT.name, batchId)
            # The next batch has not begun: what is still open belongs to attempts that were lost (to a fault, or to speculation).
            coordinator.abort(coordinator.ongoing(_prefix(self.job)))

    def abort(self, messages: list[TaskMessage | None], batchId: int) -> None:  # type: ignore[override]
        """Runs at the driver when the batch failed. What was decided stays decided; everything else of the batch is aborted."""
        if decision_log(self.job).read(batchId) is None:
            with Coordinator(self.job.bootstrap) as coordinator:
                coordinator.abort(coordinator.ongoing(_prefix(self.job)))


def _prefix(job: Job) -> str:
    return f"{job.query}.{job.start}."


class _Transaction:
    """One Kafka transaction of one task. Its producer is used once: librdkafka never learns that somebody else finished it."""

    def __init__(self, job: Job) -> None:
        self._topic = job.output_topic
        self._failure: Any = None
        self.name, self._producer = _take_producer(job)
        self._producer.begin_transaction()

    def produce(self, records: RecordBatch, headers: Headers) -> None:
        keys, values = records.column("key").to_pylist(), records.column("value").to_pylist()
        for key, value in zip(keys, values, strict=True):
            while True:
                try:
                    self._producer.produce(self._topic, value, key, headers=headers, on_delivery=self._delivered)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)

    def prepare(self) -> None:
        """Everything on the broker, or raise: after this only EndTxn is missing."""
        left = self._producer.flush(REQUEST_S)
        if left or self._failure is not None:
            raise RuntimeError(f"{left} records were not accepted by Kafka within {REQUEST_S:.0f} s (last error: {self._failure})")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failure = error


# A new producer needs 15 to 60 ms until its transactional id is initialised, and in a third of the cases librdkafka asks for the
# coordinator a second time, 500 ms later. Spark reuses a task's Python worker, so each worker initialises the next task's producer
# while this task runs. A spare that is never used has no transaction, and leaves nothing behind.
_spares: dict[tuple[str, str], Future[tuple[str, Producer]]] = {}
_making = ThreadPoolExecutor(1, thread_name_prefix="spare-producer")


def _take_producer(job: Job) -> tuple[str, Producer]:
    """A producer whose transactional id, never used before, is initialised. Begins to make the next one."""
    key = (job.bootstrap, _prefix(job))
    ready = _spares.pop(key, None)
    try:
        taken = ready.result(REQUEST_S) if ready is not None else _make_producer(job)
    except (KafkaException, TimeoutError):  # a spare that failed in the background, perhaps long ago
        taken = _make_producer(job)
    _spares[key] = _making.submit(_make_producer, job)
    return taken


def _make_producer(job: Job) -> tuple[str, Producer]:
    name = f"{_prefix(job)}{uuid.uuid4().hex}"
    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": job.transaction_timeout_ms,
            "linger.ms": 5,
            "queue.buffering.max.messages": 200_000,
            "partitioner": "murmur2_random",
            "reconnect.backoff.ms": 5,
            "retry.backoff.ms": 10,
            "log_level": 3,
        }
    )
    producer.init_transactions(REQUEST_S)
    return name, producer
