"""``foreachBatch`` into an Iceberg table: append alone, and MERGE by identity. Its catalog is in PostgreSQL.

The model: the function gets the batch and its number, and writes. What it is called with again after a crash is the same batch. A snapshot
that is written so holds neither the query's id nor the epoch: the table cannot know the batch.

    driver  1. the batch is handed to the function
            2. the catalog names the snapshot           failpoint ``after_snapshot``
    Spark   3. ``commits/N`` is written

``iceberg_foreach_append``: a plain append. A crash between 2 and 3 writes the batch twice -> DUPLICATED. At-least-once.
``iceberg_merge``: MERGE by the record's identity inserts what is not there. Exactly-once in its effect; each batch reads the table.

Checked against: Iceberg 1.11 on Spark 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproof.engines.spark.failpoints import reach
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.delta_foreach import IDENTITY
from streamproof.engines.spark.strategies.iceberg_sink import IcebergStrategy, table_of
from streamproof.engines.spark.strategies.strategy import each_batch
from streamproof.jobs.failpoint import Failpoint, Site
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

AFTER_SNAPSHOT = "after_snapshot"


class _IcebergForeach(IcebergStrategy):
    def write(self, table: str, frame: DataFrame) -> None:
        raise NotImplementedError

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        job.checkpoint().mkdir(parents=True, exist_ok=True)
        table = table_of(frame.sparkSession, job)

        def deliver(batch: DataFrame, number: int) -> None:
            self.write(table, batch)
            reach(job.run, AFTER_SNAPSHOT, number)

        rows = frame.select("key", "value")
        return each_batch(rows, job, deliver, job.checkpoint())


class IcebergForeachAppend(_IcebergForeach):
    name = "iceberg_foreach_append"
    summary = "foreachBatch appends to an Iceberg table: nothing remembers which batch that was"
    guarantee = Guarantee.AT_LEAST_ONCE
    failpoints = (
        Failpoint(
            AFTER_SNAPSHOT,
            Site.DRIVER,
            "the table has the batch, Spark has not committed it: the replay appends it again",
            provokes=frozenset({Anomaly.DUPLICATED}),
        ),
    )

    def write(self, table: str, frame: DataFrame) -> None:
        frame.writeTo(table).append()


class IcebergMerge(_IcebergForeach):
    name = "iceberg_merge"
    summary = "foreachBatch merges by the record's identity: writing again changes nothing"
    guarantee = Guarantee.EXACTLY_ONCE
    failpoints = (
        Failpoint(AFTER_SNAPSHOT, Site.DRIVER, "the table has the batch, Spark has not committed it: the replay finds each record there"),
    )

    def write(self, table: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView("streamproof_batch")
        frame.sparkSession.sql(
            f"""MERGE INTO {table} AS held USING streamproof_batch AS came
                ON {IDENTITY.replace("value", "held.value")} = {IDENTITY.replace("value", "came.value")}
                WHEN NOT MATCHED THEN INSERT (key, value) VALUES (came.key, came.value)"""
        )
