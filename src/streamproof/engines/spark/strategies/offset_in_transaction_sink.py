"""The sink of ``offset_in_transaction``: what its tasks do with a batch. The protocol is told in ``offset_in_transaction``.

Apart from the strategy so that naming the strategy does not import Spark. A ``foreachBatch`` sink, not a Python data source: a data source
costs two calls of another Python process a batch, and its commit has nothing to do here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaException, TopicPartition

from streamproof.engines.spark.failpoints import reach
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.producers import REQUEST_S, Stock, connected, take_id
from streamproof.engines.spark.strategies.offset_in_transaction import AFTER_COMMIT, AFTER_FENCE, AFTER_OFFSETS, AFTER_PRODUCE, AFTER_TASKS
from streamproof.kafka.asking import asked
from streamproof.kafka.servers import librdkafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMMITTED = "source_partition int"
OFFSETS_S = 10.0  # a group's coordinator that has died is followed by another within seconds; the next attempt's producer finds that one


def deliver(job: SparkJob) -> Callable[[DataFrame, int], None]:
    """The driver's part, a function for ``foreachBatch``: every task commits its own transaction, nothing is left to do."""

    def delivered(frame: DataFrame, batch: int) -> None:
        frame.mapInArrow(Commit(job, batch), COMMITTED).collect()
        reach(job.run, AFTER_TASKS.name, batch)

    return delivered


class Commit:
    """A task's part: the records of one source partition, from its committed offset on, and their end offset. For ``mapInArrow``."""

    def __init__(self, job: SparkJob, batch: int) -> None:
        self.job, self.batch = job, batch

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        where = {"attempt": context.attemptNumber(), "partition": context.partitionId()}
        headers = [("streamproof", f"{self.job.start}.{self.batch}.{where['attempt']}".encode())]
        line: _Line | None = None
        try:
            for records in batches:
                if not records.num_rows:
                    continue
                if line is None:
                    line = _Line(self.job, int(records.column("source_partition")[0].as_py()))
                    reach(self.job.run, AFTER_FENCE.name, self.batch, **where)
                line.produce(records, headers)
            if line is not None and line.begun:
                line.flush()
                reach(self.job.run, AFTER_PRODUCE.name, self.batch, **where)
                line.send_offset()
                reach(self.job.run, AFTER_OFFSETS.name, self.batch, **where)
                line.commit()
                reach(self.job.run, AFTER_COMMIT.name, self.batch, **where)
        finally:
            if line is not None:
                line.close()
        yield from ()


class _Line:
    """One source partition's way into the output, for one transaction: a producer that holds the partition's id, and where to go on."""

    def __init__(self, job: SparkJob, partition: int) -> None:
        self._topic = job.output_topic
        self._group = job.name
        self._source = (job.input_topic, partition)
        self._stock = _stock(job, partition)
        self._producer = take_id(self._stock.take())
        try:
            self._committed = self._stable_offset(_reader(job.task_kafka, job.name))
        except BaseException:  # whatever it was: no other code will close it
            self.close()
            raise
        self._until = self._committed
        self.begun = False

    def close(self) -> None:
        """Let go of the producer. A transaction that is open stays so: the next initialisation aborts it."""
        self._stock.put_away(self._producer)

    def _stable_offset(self, reader: Consumer) -> int:
        return asked(lambda: self._asked_offset(reader), REQUEST_S)

    def _asked_offset(self, reader: Consumer) -> int:
        committed = reader.committed([TopicPartition(*self._source)], timeout=REQUEST_S)[0]
        if committed.error is not None:
            raise KafkaException(committed.error)
        return max(int(committed.offset), 0)

    def produce(self, records: pa.RecordBatch, headers: list[tuple[str, bytes]]) -> None:
        """Begin a transaction when there is none, and produce what lies at or above the committed offset."""
        partitions = pc.unique(records.column("source_partition")).to_pylist()
        if partitions != [self._source[1]]:
            raise RuntimeError(
                f"a task holds partitions {partitions} of {self._source[0]}, expected {self._source[1]} alone: is there a shuffle?"
            )
        new = records
        if pc.min(records.column("source_offset")).as_py() < self._committed:
            new = records.filter(pc.greater_equal(records.column("source_offset"), self._committed))
        if not new.num_rows:
            return
        if not self.begun:
            self._producer.begin()
            self.begun = True
        self._producer.produce(self._topic, new.column("key"), new.column("value"), headers, REQUEST_S)
        self._until = max(self._until, int(pc.max(new.column("source_offset")).as_py()) + 1)

    def flush(self) -> None:
        """Everything on the broker, or raise."""
        self._producer.flush(REQUEST_S)

    def send_offset(self) -> None:
        self._producer.send_offsets(self._group, {self._source: self._until}, OFFSETS_S)

    def commit(self) -> None:
        """Raises when the outcome is not known: the next attempt's initialisation settles it, and reads what came of it."""
        self._producer.commit(REQUEST_S)


@functools.cache
def _reader(bootstrap: str, group: str) -> Consumer:
    """Asks for the group's offsets; one a Python worker. Only a read-committed one asks for the stable offset, which no open transaction
    may still change."""
    return Consumer({**librdkafka(bootstrap), "group.id": group, "isolation.level": "read_committed", "log_level": 2})


# By transactional id. Only the connection is made in advance: the id is the partition's, and to take it ends what its last holder has open,
# which may be at work in another Python worker. So a task takes it, and no background thread.
_stocks: dict[str, Stock] = {}


def _stock(job: SparkJob, partition: int) -> Stock:
    name = f"{job.name}.p{partition}"
    if name not in _stocks:
        _stocks[name] = Stock(lambda: connected(job, name))
    return _stocks[name]
