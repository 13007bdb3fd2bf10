"""The sink of ``postgres_upsert`` as a Spark data source. The protocol is told in ``postgres_upsert``.

Apart from the strategy so that naming the strategy does not import Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from delivery.folder import RunFolder
from pipelines import postgres, task
from pipelines.failpoints import reach
from pipelines.job import Job
from pipelines.postgres import Origin, Tables
from pipelines.strategies.postgres_upsert import AFTER_BATCH, AFTER_TASK_COMMIT, BEFORE_TASK_COMMIT

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class PostgresUpsertSink(DataSource):
    """The strategy's sink as a Spark data source; options: ``run`` (the run's folder) and ``start`` (number of the driver's start)."""

    @classmethod
    def name(cls) -> str:
        return "postgres_upsert"

    def streamWriter(self, schema: Any, overwrite: bool) -> UpsertWriter:
        return UpsertWriter(Job.read(RunFolder(self.options["run"]), int(self.options["start"])))


class UpsertWriter(DataSourceStreamArrowWriter):
    def __init__(self, job: Job) -> None:
        self.job = job

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Runs in a task: one transaction that upserts the task's records."""
        records, here = postgres.waiting(iterator), task.current()
        if records is None:
            return WriterCommitMessage()
        with closing(postgres.connect(self.job.postgres)) as connection:
            postgres.upsert(connection, Tables(self.job.query), records, Origin(self.job.start, here.batch, here.attempt))
            reach(self.job.run, BEFORE_TASK_COMMIT.name, here.batch, attempt=here.attempt, partition=here.partition)
            connection.commit()
        reach(self.job.run, AFTER_TASK_COMMIT.name, here.batch, attempt=here.attempt, partition=here.partition)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Runs at the driver, once every task has committed. There is nothing left to do."""
        reach(self.job.run, AFTER_BATCH.name, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Runs at the driver when the batch failed. What was upserted stays: the replay puts the same in its place."""
