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

from delivery.asking import asked
from pipelines.failpoints import reach
from pipelines.job import Job
from pipelines.producers import REQUEST_S, initialised
from pipelines.strategies.offset_in_transaction import AFTER_COMMIT, AFTER_FENCE, AFTER_OFFSETS, AFTER_PRODUCE, AFTER_TASKS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMMITTED = "source_partition int"
OFFSETS_S = 10.0  # a group's coordinator that has died is followed by another within seconds; a new producer then finds that one at once


def deliver(job: Job) -> Callable[[DataFrame, int], None]:
    """The driver's part, a function for ``foreachBatch``: every task commits its own transaction, nothing is left to do."""

    def delivered(frame: DataFrame, batch: int) -> None:
        frame.mapInArrow(Commit(job, batch), COMMITTED).collect()
        reach(job.run, AFTER_TASKS.name, batch)

    return delivered


class Commit:
    """A task's part: the records of one source partition, from its committed offset on, and their end offset. For ``mapInArrow``."""

    def __init__(self, job: Job, batch: int) -> None:
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
                    line = _line(self.job, int(records.column("source_partition")[0].as_py()), where["attempt"])
                    reach(self.job.run, AFTER_FENCE.name, self.batch, **where)
                line.produce(records, headers)
            if line is not None and line.begun:
                line.flush()
                reach(self.job.run, AFTER_PRODUCE.name, self.batch, **where)
                line.send_offset()
                reach(self.job.run, AFTER_OFFSETS.name, self.batch, **where)
                line.commit()
                reach(self.job.run, AFTER_COMMIT.name, self.batch, **where)
        except BaseException:  # whatever it was: this producer may hold a transaction, the next attempt must begin with a new one
            if line is not None:
                _lines.pop(line.name, None)
                line.close()
            raise
        yield from ()


class _Line:
    """One source partition's way into the output: its producer, and up to where it has committed."""

    def __init__(self, job: Job, partition: int) -> None:
        self.name = f"{job.query}.p{partition}"
        self._topic = job.output_topic
        self._group_name = job.query
        self._source = (job.input_topic, partition)
        self._producer = initialised(job, self.name)
        self._group = _reader(job.task_bootstrap, job.query)
        self._committed = self._stable_offset()
        self._until = self._committed
        self.begun = False

    def close(self) -> None:
        """Let go of the producer. A transaction that is open stays so: the next initialisation aborts it."""
        self._producer.close()

    def _stable_offset(self) -> int:
        return asked(self._asked_offset, REQUEST_S)

    def _asked_offset(self) -> int:
        committed = self._group.committed([TopicPartition(*self._source)], timeout=REQUEST_S)[0]
        if committed.error is not None:
            raise KafkaException(committed.error)
        return max(int(committed.offset), 0)

    def is_current(self) -> bool:
        """Whether nobody else has committed for the partition since this producer did."""
        return not self.begun and self._stable_offset() == self._committed

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
        self._producer.send_offsets(self._group_name, {self._source: self._until}, OFFSETS_S)

    def commit(self) -> None:
        """Raises when the outcome is not known: the next attempt's initialisation settles it, and reads what came of it."""
        self._producer.commit(REQUEST_S)
        self._committed, self.begun = self._until, False


@functools.cache
def _reader(bootstrap: str, group: str) -> Consumer:
    """Asks for the group's offsets; one a Python worker. Only a read-committed one asks for the stable offset, which no open transaction
    may still change."""
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed", "log_level": 2})


# Spark reuses Python workers: a partition's producer is kept for the next batch that comes to the same worker. Meanwhile the partition may
# have been at another worker, whose producer has fenced this one. An attempt after the first begins with a new producer at once: the one
# before may have left its transaction open, and until a new producer aborts it there is no stable offset to compare with.
_lines: dict[str, _Line] = {}


def _line(job: Job, partition: int, attempt: int) -> _Line:
    name = f"{job.query}.p{partition}"
    found = _lines.get(name)
    if found is not None and attempt == 0 and found.is_current():
        return found
    if found is not None:
        del _lines[name]
        found.close()
    _lines[name] = _Line(job, partition)
    return _lines[name]
