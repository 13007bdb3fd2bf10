"""``postgres_upsert``: each task upserts its records by their identity. Effectively once.

The model: nothing remembers what was written; writing it again changes nothing. Each record has a key of its own, here the identity that
its value carries, and the table has room for one row of each. A retry or a replay overwrites what is there with the same.

    task    1. BEGIN, COPY the records into a temporary table
            2. INSERT ... ON CONFLICT (identity) DO UPDATE            failpoint ``before_task_commit``
            3. COMMIT                                                 failpoint ``after_task_commit``
    driver  4. every task has committed                               failpoint ``after_batch``
    Spark   5. ``commits/N`` is written

Crash windows:
    before 3: the transaction is rolled back; the retry or replay upserts.
    between 3 and 5: the rows are there. The retry or replay puts the same in their place.
    Two attempts at once: rows are upserted in the order of their identity, so the second waits for the first, and neither for ever.

What it rests on: records have a key, and are not to be counted. A record that the *source* holds twice (a producer's retry) is merged
as well, where the exactly-once strategies deliver it twice, as it came. A record without an identity that can be read is keyed by
its place in the source. Needs no order within a batch: of two versions of a record the one with the later source offset stays.

Checked against: PostgreSQL 18.4 (ON CONFLICT DO UPDATE refuses to touch a row twice in one statement, so the batch is made distinct
first; an index tells a conflict with a transaction in progress, and waits for its end).
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

BEFORE_TASK_COMMIT = Failpoint("before_task_commit", Site.TASK, "upserted, not committed: it is rolled back, and upserted again")
AFTER_TASK_COMMIT = Failpoint("after_task_commit", Site.TASK, "committed, Spark does not know: the retry puts the same rows in their place")
AFTER_BATCH = Failpoint("after_batch", Site.DRIVER, "all committed, Spark does not know: the replay puts the same rows in their place")


class PostgresUpsert(Strategy):
    name = "postgres_upsert"
    summary = "INSERT ... ON CONFLICT by the record's identity: writing again changes nothing"
    sink = "postgres"
    guarantee = Guarantee.EXACTLY_ONCE
    failpoints = (BEFORE_TASK_COMMIT, AFTER_TASK_COMMIT, AFTER_BATCH)

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        from streamproof.engines.spark.strategies.postgres_upsert_sink import deliver

        job.checkpoint().mkdir(parents=True, exist_ok=True)
        return each_batch(frame, job, deliver(job), job.checkpoint())
