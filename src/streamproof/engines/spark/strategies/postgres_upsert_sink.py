"""The sink of ``postgres_upsert``: what its tasks do with a batch. The protocol is told in ``postgres_upsert``.

Apart from the strategy so that naming the strategy does not import Spark. A ``foreachBatch`` sink, not a Python data source: a data source
costs two calls of another Python process a batch, and some 0.15 s with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from streamproof.engines.spark import task
from streamproof.engines.spark.failpoints import reach
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.postgres_upsert import AFTER_BATCH, AFTER_TASK_COMMIT, BEFORE_TASK_COMMIT
from streamproof.sinks.postgres import tables
from streamproof.sinks.postgres.tables import Origin, Tables

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame


UPSERTED = "source_partition int"


def deliver(job: SparkJob) -> Callable[[DataFrame, int], None]:
    """The driver's part, a function for ``foreachBatch``: every task commits its own transaction, nothing is left to do."""

    def delivered(frame: DataFrame, batch: int) -> None:
        frame.mapInArrow(Upsert(job, batch), UPSERTED).collect()
        reach(job.run, AFTER_BATCH.name, batch)

    return delivered


class Upsert:
    """A task's part: one transaction that upserts the task's records. For ``mapInArrow``; yields nothing."""

    def __init__(self, job: SparkJob, batch: int) -> None:
        self.job, self.batch = job, batch

    def __call__(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        records, here = tables.waiting(iter(batches)), task.current(self.batch)
        if records is not None:
            with tables.kept(self.job.postgres) as connection:
                tables.upsert(connection, Tables(self.job.name), records, Origin(self.job.start, here.batch, here.attempt))
                reach(self.job.run, BEFORE_TASK_COMMIT.name, here.batch, attempt=here.attempt, partition=here.partition)
                connection.commit()
            reach(self.job.run, AFTER_TASK_COMMIT.name, here.batch, attempt=here.attempt, partition=here.partition)
        yield from ()
