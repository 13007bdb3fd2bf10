"""``postgres_ledger``: each task writes its records and a row of a ledger in one PostgreSQL transaction. Exactly-once.

The model: output and progress lie in the same database, so one transaction holds both. The ledger has one row for each part of each
batch, with (batch, source partition) as its key. Whoever comes second, a retry or a replay, finds the row and writes nothing.

    task    1. is the part in the ledger? then skip the rest
            2. BEGIN, COPY the records
            3. insert the ledger's row; a conflict: roll back, skip   failpoint ``before_task_commit``
            4. COMMIT                                                 failpoint ``after_task_commit``
    driver  5. every task has committed                               failpoint ``after_batch``
    Spark   6. ``commits/N`` is written

Crash windows:
    before 4: the transaction is rolled back, records and ledger together. The retry or replay writes them. No trace.
    between 4 and 6: the part is in the ledger. The retry or replay finds it and skips.
    during 4, when the answer is lost: the task does not know whether it committed. It fails, and its retry asks the ledger.
    Two attempts at once (a zombie and its replacement): the second insert waits for the first transaction to end, then conflicts.

Not atomic over partitions: until 5 a reader may see part of a batch. ``postgres_ledger_single`` is the same with one task for the whole
batch, as textbooks have it: a batch is visible whole or not at all, and its writing has no parallelism.

What it rests on: a replay of a batch brings the same records, which Spark's ``offsets/N`` promises for a source that keeps them. It does
*not* promise them in the same partitions: after a restart, partition 0 of the same batch may read another partition of the topic. With
Spark's number in the key, as is often seen, one part would be skipped in place of another: LOST, and the other DUPLICATED. So the key is
the source's partition. Progress that is planned anew (asynchronous progress tracking) breaks it still; therefore a row also holds
the range of source offsets, and a replay that brings others raises LedgerMismatch.

Checked against: PostgreSQL 18.4 (INSERT ... ON CONFLICT DO NOTHING waits for a transaction in progress that wrote the same key) and Spark
4.1 (``MicroBatchExecution``; ``ForeachBatchSink`` calls the function again for a batch without ``commits/N``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.strategy import Strategy, each_batch
from streamproof.jobs.failpoint import Failpoint, Site
from streamproof.verdict.guarantee import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

BEFORE_TASK_COMMIT = Failpoint(
    "before_task_commit", Site.TASK, "records and ledger are written, not committed: both are rolled back, the part is written again"
)
AFTER_TASK_COMMIT = Failpoint(
    "after_task_commit", Site.TASK, "the part is committed, Spark does not know: the retry finds it in the ledger"
)
AFTER_BATCH = Failpoint("after_batch", Site.DRIVER, "all parts are committed, Spark does not know: the replay finds them in the ledger")


class PostgresLedger(Strategy):
    name = "postgres_ledger"
    summary = "Records and a ledger row (batch, source partition) in one PostgreSQL transaction per task"
    sink = "postgres"
    takes_results = True
    guarantee = Guarantee.EXACTLY_ONCE
    failpoints = (BEFORE_TASK_COMMIT, AFTER_TASK_COMMIT, AFTER_BATCH)
    doubles = (("before_task_commit", "after_task_commit"), ("after_task_commit", "after_batch"))

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        from streamproof.engines.spark.strategies.postgres_ledger_sink import deliver

        job.checkpoint().mkdir(parents=True, exist_ok=True)
        return each_batch(frame, job, deliver(job), job.checkpoint())


class PostgresLedgerSingle(PostgresLedger):
    name = "postgres_ledger_single"
    takes_results = False
    summary = "The whole batch and its ledger row in one PostgreSQL transaction of a single task"
    atomic = True

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        return super().start(frame.repartition(1), job)
