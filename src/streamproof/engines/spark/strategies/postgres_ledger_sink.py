"""The sink of ``postgres_ledger``: what its tasks do with a batch. The protocol is told in ``postgres_ledger``.

Apart from the strategy so that naming the strategy does not import Spark. A ``foreachBatch`` sink, not a Python data source: a data source
costs two calls of another Python process a batch, and some 0.15 s with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from streamproof.engines.spark import task
from streamproof.engines.spark.failpoints import reach
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.postgres_ledger import AFTER_BATCH, AFTER_TASK_COMMIT, BEFORE_TASK_COMMIT
from streamproof.sinks.postgres import tables as postgres
from streamproof.sinks.postgres.tables import Copied, Entry, Origin, Tables

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame


COMMITTED = "source_partition int"


def deliver(job: SparkJob) -> Callable[[DataFrame, int], None]:
    """The driver's part, a function for ``foreachBatch``: every task commits its own transaction, nothing is left to do."""

    def delivered(frame: DataFrame, batch: int) -> None:
        frame.mapInArrow(Commit(job, batch), COMMITTED).collect()
        reach(job.run, AFTER_BATCH.name, batch)

    return delivered


class Commit:
    """A task's part: one transaction with the task's records and their rows in the ledger. For ``mapInArrow``; yields nothing."""

    def __init__(self, job: SparkJob, batch: int) -> None:
        self.job, self.batch = job, batch

    def __call__(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        records, here = postgres.waiting(iter(batches)), task.current(self.batch)
        if records is not None:
            with postgres.kept(self.job.postgres) as connection:
                self.deliver(connection, records, here)
        yield from ()

    def deliver(self, connection: postgres.Connection, records: Iterator[RecordBatch], here: task.Task) -> None:
        tables, entry = Tables(self.job.name), Entry(here.batch, here.attempt)
        first = next(records)
        records = itertools.chain([first], records)
        if postgres.entered(connection, tables, entry, [first.column("source_partition")[0].as_py()]):
            copied = Copied()
            for batch in records:
                copied.add(batch)
        else:
            copied = postgres.append(connection, tables, records, Origin(self.job.start, here.batch, here.attempt))
            if postgres.enter(connection, tables, entry, copied):
                reach(self.job.run, BEFORE_TASK_COMMIT.name, here.batch, attempt=here.attempt, partition=here.partition)
                connection.commit()
                reach(self.job.run, AFTER_TASK_COMMIT.name, here.batch, attempt=here.attempt, partition=here.partition)
                return
            connection.rollback()
        postgres.check_same(entry, postgres.entered(connection, tables, entry, copied.ranges), copied)
