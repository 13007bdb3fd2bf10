"""The sink of ``postgres_two_phase_commit`` as a Spark data source: tasks prepare, the driver decides. The protocol is told there.

Apart from the strategy so that naming the strategy does not import Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from delivery.folder import RunFolder
from pipelines import postgres, task
from pipelines.failpoints import reach
from pipelines.job import Job
from pipelines.postgres import Entry, Origin, Tables
from pipelines.strategies.postgres_two_phase_commit import (
    AFTER_COMMIT,
    AFTER_DECISION,
    AFTER_PREPARE,
    BEFORE_DECISION,
    BEFORE_PREPARE,
    BETWEEN_COMMITS,
)
from pipelines.transactions import TransactionLost

if TYPE_CHECKING:
    from pyarrow import RecordBatch


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task tells the driver: the transaction that it prepared, None when it had nothing to write."""

    gid: str | None


class PostgresTwoPhaseSink(DataSource):
    """The strategy's sink as a Spark data source; options: ``run`` (the run's folder) and ``start`` (number of the driver's start)."""

    @classmethod
    def name(cls) -> str:
        return "postgres_two_phase_commit"

    def streamWriter(self, schema: Any, overwrite: bool) -> TwoPhaseWriter:
        return TwoPhaseWriter(Job.read(RunFolder(self.options["run"]), int(self.options["start"])))


class TwoPhaseWriter(DataSourceStreamArrowWriter):
    def __init__(self, job: Job) -> None:
        self.job = job

    def write(self, iterator: Iterator[RecordBatch]) -> TaskMessage:
        """Runs in a task: prepare one transaction with the task's records."""
        records, here = postgres.waiting(iterator), task.current()
        if records is None:
            return TaskMessage(None)
        with closing(postgres.connect(self.job.postgres)) as connection:
            return self._prepare(connection, records, here)

    def _prepare(self, connection: postgres.Connection, records: Iterator[RecordBatch], here: task.Task) -> TaskMessage:
        run, tables = self.job.run, Tables(self.job.query)
        if postgres.decision(connection, tables, here.batch) is not None:
            return TaskMessage(None)
        gid = f"{tables.schema}:{self.job.start}:{here.batch}:{here.partition}:{here.unique}:{here.attempt}"
        copied = postgres.append(connection, tables, records, Origin(self.job.start, here.batch, here.attempt))
        postgres.enter(connection, tables, Entry(here.batch, here.attempt, gid), copied)
        reach(run, BEFORE_PREPARE.name, here.batch, attempt=here.attempt, partition=here.partition)
        postgres.prepare(connection, gid)
        reach(run, AFTER_PREPARE.name, here.batch, attempt=here.attempt, partition=here.partition)
        return TaskMessage(gid)

    def commit(self, messages: list[TaskMessage | None], batchId: int) -> None:  # type: ignore[override]
        """Runs at the driver, once every task has prepared: decide, then carry the decision out."""
        gids = [message.gid for message in messages if message is not None and message.gid is not None]
        run, tables = self.job.run, Tables(self.job.query)
        with closing(postgres.connect(self.job.postgres, autocommit=True)) as connection:
            decided = postgres.decision(connection, tables, batchId)
            if decided is None:
                lost = sorted(set(gids) - set(postgres.prepared(connection, f"{tables.schema}:")))
                if lost:
                    raise TransactionLost(f"batch {batchId}: {', '.join(lost)} not prepared any more")
                reach(run, BEFORE_DECISION.name, batchId)
                postgres.decide(connection, tables, batchId, gids)
                decided = gids
                reach(run, AFTER_DECISION.name, batchId)
            postgres.carry_out(connection, tables, decided[:1])
            reach(run, BETWEEN_COMMITS.name, batchId)
            postgres.carry_out(connection, tables, decided[1:])
            postgres.finish(connection, tables, batchId)
            reach(run, AFTER_COMMIT.name, batchId)
            # The next batch has not begun: what is still prepared belongs to attempts that were lost (to a fault, or to speculation).
            postgres.roll_back_undecided(connection, tables)

    def abort(self, messages: list[TaskMessage | None], batchId: int) -> None:  # type: ignore[override]
        """Runs at the driver when the batch failed. What was decided stays decided; everything else is rolled back."""
        with closing(postgres.connect(self.job.postgres, autocommit=True)) as connection:
            postgres.roll_back_undecided(connection, Tables(self.job.query))
