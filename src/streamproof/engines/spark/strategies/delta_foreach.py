"""``foreachBatch`` into a Delta table: append alone, append with a transaction of its own, and MERGE by identity.

The model: the function gets the batch and its number, and writes. What it is called with again after a crash is the same batch; whether it
writes it again is its own affair.

    driver  1. the batch is handed to the function
    tasks      write files, which no version names yet  step ``after_files``, watched (``delta_foreach_txn``)
    driver  2. a version of the table is committed      failpoint ``after_version``
    Spark   3. ``commits/N`` is written

``delta_foreach_append``: a plain ``write.mode("append")``. A crash between 2 and 3 writes the batch twice -> DUPLICATED. At-least-once.
``delta_foreach_txn``: the same with ``txnAppId`` and ``txnVersion``, the batch's number. The table remembers both, and skips what it knows.
Exactly-once while the checkpoint is the same.
``delta_foreach_txn_new_checkpoint``: the same job, which keeps its checkpoint on a disk that is new at each start, and goes on from the
offsets that it had committed. Its batches begin with 0 again, and the table skips each number that it knows, silently -> LOST.
At-most-once.
``delta_merge``: MERGE by the record's identity inserts what is not there. Exactly-once in its effect; each batch reads the table.

Checked against: Delta 4.4 on Spark 4.1, and Delta's documentation on idempotent writes in ``foreachBatch``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamproof.engines.spark.failpoints import reach
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.delta_sink import AFTER_FILES, DeltaStrategy
from streamproof.engines.spark.strategies.strategy import each_batch
from streamproof.evidence.folder import write_atomically
from streamproof.jobs.failpoint import Failpoint, Site
from streamproof.jobs.profile import Trait
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

AFTER_VERSION = "after_version"
IDENTITY = "get_json_object(cast(value as string), '$.id')"


def append_once(job: SparkJob, frame: DataFrame, batch: int) -> None:
    """Append, unless the table knows this number of the job's, or a higher one."""
    writer = frame.write.format("delta").mode("append").option("txnAppId", job.name).option("txnVersion", batch)
    writer.save(f"file://{job.files}")


class _DeltaForeach(DeltaStrategy):
    def write(self, job: SparkJob, frame: DataFrame, batch: int) -> None:
        raise NotImplementedError

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        job.checkpoint().mkdir(parents=True, exist_ok=True)
        rows = frame.select("key", "value")
        return each_batch(rows, job, self._deliver(job), job.checkpoint())

    def _deliver(self, job: SparkJob) -> Callable[[DataFrame, int], None]:
        def delivered(frame: DataFrame, batch: int) -> None:
            self.write(job, frame, batch)
            reach(job.run, AFTER_VERSION, batch)

        return delivered


class DeltaForeachAppend(_DeltaForeach):
    name = "delta_foreach_append"
    summary = "foreachBatch appends to a Delta table: nothing remembers which batch that was"
    guarantee = Guarantee.AT_LEAST_ONCE
    failpoints = (
        Failpoint(
            AFTER_VERSION,
            Site.DRIVER,
            "the table has the batch, Spark has not committed it: the replay appends it again",
            provokes=frozenset({Anomaly.DUPLICATED}),
        ),
    )

    def write(self, job: SparkJob, frame: DataFrame, batch: int) -> None:
        frame.write.format("delta").mode("append").save(f"file://{job.files}")


class DeltaForeachTxn(_DeltaForeach):
    name = "delta_foreach_txn"
    summary = "foreachBatch appends with txnAppId and txnVersion: the table skips a batch that it knows"
    guarantee = Guarantee.EXACTLY_ONCE
    relies_on = frozenset({Trait.DELTA_TABLE, Trait.SKIPS_COMPLETE_OUTPUT})
    failpoints = (
        AFTER_FILES,
        Failpoint(
            AFTER_VERSION,
            Site.DRIVER,
            "the table has the batch, Spark has not committed it: the replay is skipped, for its number is known",
        ),
    )

    def write(self, job: SparkJob, frame: DataFrame, batch: int) -> None:
        append_once(job, frame, batch)


class DeltaForeachTxnNewCheckpoint(_DeltaForeach):
    name = "delta_foreach_txn_new_checkpoint"
    summary = "the same with a new checkpoint at each start, which goes on from the committed offsets: batches count from 0 again"
    guarantee = Guarantee.AT_MOST_ONCE
    relies_on = frozenset({Trait.DELTA_TABLE, Trait.SKIPS_COMPLETE_OUTPUT})
    failpoints = (
        Failpoint(
            AFTER_VERSION,
            Site.DRIVER,
            "the next start counts its batches from 0, and the table skips each number that it knows: their records are gone",
            provokes=frozenset({Anomaly.LOST}),
        ),
    )

    def recover(self, job: SparkJob) -> dict[str, Any]:
        """Takes the checkpoint away, and keeps from where it would have gone on."""
        from streamproof.engines.spark import checkpoints

        committed = checkpoints.committed(job.checkpoint())
        if not committed:
            return {}
        write_atomically(self._kept(job), json.dumps(committed))
        job.checkpoint().rename(job.checkpoint(f"spark-{len(list(job.run.checkpoint.glob('spark-*')))}"))
        return {"checkpoint": "new", "goes_on_from": committed}

    def starting_offsets(self, job: SparkJob) -> str:
        kept = self._kept(job)
        return json.dumps({job.input_topic: json.loads(kept.read_text())}) if kept.exists() else "earliest"

    def _kept(self, job: SparkJob) -> Path:
        return job.run.checkpoint / "kept-offsets.json"

    def write(self, job: SparkJob, frame: DataFrame, batch: int) -> None:
        append_once(job, frame, batch)


class DeltaMerge(_DeltaForeach):
    name = "delta_merge"
    summary = "foreachBatch merges by the record's identity: writing again changes nothing"
    guarantee = Guarantee.EXACTLY_ONCE
    failpoints = (
        Failpoint(AFTER_VERSION, Site.DRIVER, "the table has the batch, Spark has not committed it: the replay finds each record there"),
    )

    def write(self, job: SparkJob, frame: DataFrame, batch: int) -> None:
        frame.createOrReplaceTempView("streamproof_batch")
        spark, table = frame.sparkSession, f"delta.`file://{job.files}`"
        spark.sql(f"CREATE TABLE IF NOT EXISTS {table} (key BINARY, value BINARY) USING delta")
        spark.sql(
            f"""MERGE INTO {table} AS held USING streamproof_batch AS came
                ON {IDENTITY.replace("value", "held.value")} = {IDENTITY.replace("value", "came.value")}
                WHEN NOT MATCHED THEN INSERT (key, value) VALUES (came.key, came.value)"""
        )
