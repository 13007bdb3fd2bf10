"""A micro-batch to Kafka with Spark's own writer, from ``foreachBatch``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.job import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write(batch: DataFrame, job: Job, number: int) -> None:
    """Write columns key and value; the header ``streamproof`` says ``start.batch.0`` (a task's attempt is not known here)."""
    header = f"array(struct('streamproof' AS key, CAST('{job.start}.{number}.0' AS BINARY) AS value)) AS headers"
    (
        batch.selectExpr("key", "value", header)
        .write.format("kafka")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("topic", job.output_topic)
        .option("includeHeaders", "true")
        .save()
    )
