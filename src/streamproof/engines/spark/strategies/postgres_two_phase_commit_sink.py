"""The sink of ``postgres_two_phase_commit``: what its tasks and its driver do with a batch. The protocol is told there.

Apart from the strategy so that naming the strategy does not import Spark. A ``foreachBatch`` sink, not a Python data source: a data source
costs two calls of another Python process a batch, and some 0.15 s with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa

from streamproof.engines.spark import state, task
from streamproof.engines.spark.decisions import DECIDING
from streamproof.engines.spark.failpoints import reach
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.postgres_two_phase_commit import (
    AFTER_COMMIT,
    AFTER_DECISION,
    AFTER_PREPARE,
    BEFORE_DECISION,
    BEFORE_PREPARE,
    BETWEEN_COMMITS,
)
from streamproof.kafka.transactions import TransactionLost
from streamproof.sinks.postgres import tables as postgres
from streamproof.sinks.postgres.tables import Entry, Origin, Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


PREPARED = "gid string"


class Prepare:
    """A task's part: prepare one transaction with the task's records. For ``mapInArrow``; yields the transaction's gid."""

    def __init__(self, job: SparkJob, batch: int) -> None:
        self.job, self.batch = job, batch

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        records, here = postgres.waiting(iter(batches)), task.current(self.batch)
        if records is None:
            return
        with postgres.kept(self.job.postgres) as connection:
            gid = self.prepare(connection, records, here)
        if gid is not None:
            yield pa.RecordBatch.from_arrays([pa.array([gid])], names=["gid"])

    def prepare(self, connection: postgres.Connection, records: Iterator[pa.RecordBatch], here: task.Task) -> str | None:
        """The gid of what was prepared; None when the batch is decided already, without this task."""
        run, tables = self.job.run, Tables(self.job.name)
        if postgres.decision(connection, tables, here.batch) is not None:
            state.read_on(records, self.job)
            return None
        gid = f"{tables.schema}:{self.job.start}:{here.batch}:{here.partition}:{here.unique}:{here.attempt}"
        copied = postgres.append(connection, tables, records, Origin(self.job.start, here.batch, here.attempt))
        postgres.enter(connection, tables, Entry(here.batch, here.attempt, gid), copied)
        reach(run, BEFORE_PREPARE.name, here.batch, attempt=here.attempt, partition=here.partition)
        postgres.prepare(connection, gid)
        reach(run, AFTER_PREPARE.name, here.batch, attempt=here.attempt, partition=here.partition)
        return gid


class Deliver:
    """The driver's part, a function for ``foreachBatch``: let every task prepare, decide, then carry the decision out."""

    def __init__(self, job: SparkJob) -> None:
        self._job = job

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            rows = frame.mapInArrow(Prepare(self._job, batch), PREPARED).collect()
            self.commit([row.gid for row in rows], batch)
        except BaseException:  # whatever it was: what is undecided must not stay prepared, and the query learns of it
            self.abort()
            raise

    def commit(self, gids: list[str], batch: int) -> None:
        """Every task has prepared: decide, then carry the decision out."""
        run, tables = self._job.run, Tables(self._job.name)
        with DECIDING, closing(postgres.connect(self._job.postgres, autocommit=True)) as connection:
            decided = postgres.decision(connection, tables, batch)
            if decided is None:
                lost = sorted(set(gids) - set(postgres.prepared(connection, f"{tables.schema}:")))
                if lost:
                    raise TransactionLost(f"batch {batch}: {', '.join(lost)} not prepared any more")
                reach(run, BEFORE_DECISION.name, batch)
                postgres.decide(connection, tables, batch, gids)
                decided = gids
                reach(run, AFTER_DECISION.name, batch)
            postgres.carry_out(connection, tables, decided[:1])
            reach(run, BETWEEN_COMMITS.name, batch)
            postgres.carry_out(connection, tables, decided[1:])
            postgres.finish(connection, tables, batch)
            reach(run, AFTER_COMMIT.name, batch)
            # The next batch has not begun: what is still prepared belongs to attempts that were lost (to a fault, or to speculation).
            postgres.roll_back_undecided(connection, tables)

    def abort(self) -> None:
        """What was decided stays decided; everything else is rolled back."""
        with DECIDING, closing(postgres.connect(self._job.postgres, autocommit=True)) as connection:
            postgres.roll_back_undecided(connection, Tables(self._job.name))
