"""The sink of ``postgres_ledger`` as a Spark data source. The protocol is told in ``postgres_ledger``.

Apart from the strategy so that naming the strategy does not import Spark.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from delivery.folder import RunFolder
from pipelines import postgres, task
from pipelines.failpoints import reach
from pipelines.job import Job
from pipelines.postgres import Copied, Entry, Origin, Tables
from pipelines.strategies.postgres_ledger import AFTER_BATCH, AFTER_TASK_COMMIT, BEFORE_TASK_COMMIT

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class PostgresLedgerSink(DataSource):
    """The strategy's sink as a Spark data source; options: ``run`` (the run's folder) and ``start`` (number of the driver's start)."""

    @classmethod
    def name(cls) -> str:
        return "postgres_ledger"

    def streamWriter(self, schema: Any, overwrite: bool) -> LedgerWriter:
        return LedgerWriter(Job.read(RunFolder(self.options["run"]), int(self.options["start"])))


class LedgerWriter(DataSourceStreamArrowWriter):
    def __init__(self, job: Job) -> None:
        self.job = job

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Runs in a task: one transaction with the task's records and their row in the ledger."""
        records, here = postgres.waiting(iterator), task.current()
        if records is not None:
            with closing(postgres.connect(self.job.postgres)) as connection:
                self._deliver(connection, records, here)
        return WriterCommitMessage()

    def _deliver(self, connection: postgres.Connection, records: Iterator[RecordBatch], here: task.Task) -> None:
        tables, entry = Tables(self.job.query), Entry(here.batch, here.attempt)
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

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Runs at the driver, once every task has committed. There is nothing left to do."""
        reach(self.job.run, AFTER_BATCH.name, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Runs at the driver when the batch failed. What was committed stays: the ledger has it, and the replay will skip it."""
