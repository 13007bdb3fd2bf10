"""``foreach_batch``: each micro-batch is appended to the output from ``foreachBatch``. At-least-once.

The model: what many jobs do that write to a system Spark has no sink for. The checkpoint says where to go on.

    1. ``offsets/N`` is written
    2. the batch is written            failpoint ``after_output``
    3. ``commits/N`` is written

Crash windows:
    at 2: the batch is visible, the checkpoint does not know it; the next start writes it again -> DUPLICATED.
    No window loses.

Checked against: Spark 4.1 (``ForeachBatchSink`` runs the function again for a batch without ``commits/N``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproof.engines.spark import spark_kafka
from streamproof.engines.spark.failpoints import reach
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.strategy import Strategy
from streamproof.jobs.failpoint import Failpoint, Site
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

AFTER_OUTPUT = Failpoint(
    "after_output", Site.DRIVER, "visible, not committed: the next start writes it again", provokes=frozenset({Anomaly.DUPLICATED})
)


class ForeachBatch(Strategy):
    name = "foreach_batch"
    summary = "foreachBatch appends to the output; Spark's checkpoint says where to go on"
    sink = "kafka"
    guarantee = Guarantee.AT_LEAST_ONCE
    failpoints = (AFTER_OUTPUT,)

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        def deliver(batch: DataFrame, number: int) -> None:
            spark_kafka.write(batch, job, number)
            reach(job.run, AFTER_OUTPUT.name, number)

        checkpoint = f"file://{job.checkpoint()}"
        return frame.writeStream.foreachBatch(deliver).queryName(job.name).option("checkpointLocation", checkpoint).start()
