"""The sink of ``offset_in_transaction`` as a Spark data source. The protocol is told in ``offset_in_transaction``.

Apart from the strategy so that naming the strategy does not import Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from delivery.folder import RunFolder
from pipelines.failpoints import reach
from pipelines.job import Job
from pipelines.strategies.offset_in_transaction import AFTER_COMMIT, AFTER_FENCE, AFTER_OFFSETS, AFTER_PRODUCE, AFTER_TASKS

if TYPE_CHECKING:
    from pyarrow import RecordBatch

REQUEST_S = 30.0
Headers = list[tuple[str, str | bytes | None]]


@dataclass
class TaskMessage(WriterCommitMessage):
    """Tells the driver nothing: what a task did is in Kafka."""


class KafkaTransactionalSink(DataSource):
    """The strategy's sink as a Spark data source; options: ``run`` (the run's folder) and ``start`` (number of the driver's start)."""

    @classmethod
    def name(cls) -> str:
        return "kafka_offset_in_transaction"

    def streamWriter(self, schema: Any, overwrite: bool) -> TransactionalWriter:
        return TransactionalWriter(Job.read(RunFolder(self.options["run"]), int(self.options["start"])))


class TransactionalWriter(DataSourceStreamArrowWriter):
    def __init__(self, job: Job) -> None:
        self.job = job

    def write(self, iterator: Iterator[RecordBatch]) -> TaskMessage:
        """Runs in a task: the records of one source partition, from its committed offset on, and their end offset."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId"))  # type: ignore[arg-type]
        where = {"attempt": context.attemptNumber(), "partition": context.partitionId()}
        headers: Headers = [("streamproof", f"{self.job.start}.{batch}.{where['attempt']}".encode())]
        line: _Line | None = None
        try:
            for records in iterator:
                if not records.num_rows:
                    continue
                if line is None:
                    line = _line(self.job, int(records.column("source_partition")[0].as_py()))
                    reach(self.job.run, AFTER_FENCE.name, batch, **where)
                line.produce(records, headers)
            if line is not None and line.begun:
                line.flush()
                reach(self.job.run, AFTER_PRODUCE.name, batch, **where)
                line.send_offset()
                reach(self.job.run, AFTER_OFFSETS.name, batch, **where)
                line.commit()
                reach(self.job.run, AFTER_COMMIT.name, batch, **where)
        except BaseException:  # whatever it was: this producer may hold a transaction, the next attempt must begin with a new one
            if line is not None:
                _lines.pop(line.name, None)
            raise
        return TaskMessage()

    def commit(self, messages: list[TaskMessage | None], batchId: int) -> None:  # type: ignore[override]
        """Runs at the driver, once every task has committed its own transaction: nothing is left to do."""
        reach(self.job.run, AFTER_TASKS.name, batchId)

    def abort(self, messages: list[TaskMessage | None], batchId: int) -> None:  # type: ignore[override]
        """Runs at the driver when the batch failed. What tasks committed stays; what they left open the next attempt ends."""


class _Line:
    """One source partition's way into the output: its producer, and up to where it has committed."""

    def __init__(self, job: Job, partition: int) -> None:
        self.name = f"{job.query}.p{partition}"
        self._topic = job.output_topic
        self._source = (job.input_topic, partition)
        self._failure: Any = None
        self._producer = Producer(
            {
                "bootstrap.servers": job.bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": job.transaction_timeout_ms,
                "linger.ms": 5,
                "queue.buffering.max.messages": 200_000,
                "partitioner": "murmur2_random",
                "reconnect.backoff.ms": 5,
                "retry.backoff.ms": 10,
                "log_level": 3,
            }
        )
        self._producer.init_transactions(REQUEST_S)
        # Only a read-committed consumer asks for the stable offset: one that no open transaction may still change.
        self._group = Consumer(
            {"bootstrap.servers": job.bootstrap, "group.id": job.query, "isolation.level": "read_committed", "log_level": 2}
        )
        self._committed = self._stable_offset()
        self._until = self._committed
        self.begun = False

    def _stable_offset(self) -> int:
        found = self._group.committed([TopicPartition(*self._source)], timeout=REQUEST_S)[0]
        if found.error is not None:
            raise KafkaException(found.error)
        return max(int(found.offset), 0)

    def is_current(self) -> bool:
        """Whether nobody else has committed for the partition since this producer did."""
        return not self.begun and self._stable_offset() == self._committed

    def produce(self, records: RecordBatch, headers: Headers) -> None:
        """Begin a transaction when there is none, and produce what lies at or above the committed offset."""
        partitions = pc.unique(records.column("source_partition")).to_pylist()
        if partitions != [self._source[1]]:
            raise RuntimeError(
                f"a task holds partitions {partitions} of {self._source[0]}, expected {self._source[1]} alone: is there a shuffle?"
            )
        new = records.filter(pc.greater_equal(records.column("source_offset"), self._committed))
        if not new.num_rows:
            return
        if not self.begun:
            self._producer.begin_transaction()
            self.begun = True
        for key, value in zip(new.column("key").to_pylist(), new.column("value").to_pylist(), strict=True):
            while True:
                try:
                    self._producer.produce(self._topic, value, key, headers=headers, on_delivery=self._delivered)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)
        self._until = max(self._until, int(pc.max(new.column("source_offset")).as_py()) + 1)

    def flush(self) -> None:
        """Everything on the broker, or raise."""
        left = self._producer.flush(REQUEST_S)
        if left or self._failure is not None:
            raise RuntimeError(f"{left} records were not accepted by Kafka within {REQUEST_S:.0f} s (last error: {self._failure})")

    def send_offset(self) -> None:
        offsets = [TopicPartition(*self._source, self._until)]
        self._producer.send_offsets_to_transaction(offsets, self._group.consumer_group_metadata(), REQUEST_S)

    def commit(self) -> None:
        """Raises when the outcome is not known: the next attempt's initialisation settles it, and reads what came of it."""
        self._producer.commit_transaction(REQUEST_S)
        self._committed, self.begun = self._until, False

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failure = error


# Spark reuses Python workers: a partition's producer is kept for the next batch that comes to the same worker. Meanwhile the partition may
# have been at another worker, whose producer has fenced this one.
_lines: dict[str, _Line] = {}


def _line(job: Job, partition: int) -> _Line:
    name = f"{job.query}.p{partition}"
    found = _lines.get(name)
    if found is None or not found.is_current():
        found = _lines[name] = _Line(job, partition)
    return found
