"""Spark's own way to Kafka: where its source and sink find it, and a micro-batch written from ``foreachBatch``.

One option, ``kafka.bootstrap.servers``, serves the driver and every executor. Where these reach Kafka at addresses of their own, the option
names an environment variable, which the Kafka client of each JVM looks up for itself (Kafka's ``EnvVarConfigProvider``, KIP-421).

Checked against: Spark 4.1 with kafka-clients 3.9 (options that begin with ``kafka.`` reach the client as they are).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from streamproof.engines.spark.job import SparkJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


VARIABLE = "STREAMPROOF_KAFKA"


def address(job: SparkJob) -> dict[str, str]:
    """The options by which Spark's source or sink finds Kafka."""
    if job.task_bootstrap == job.bootstrap:
        return {"kafka.bootstrap.servers": job.bootstrap}
    return {
        "kafka.bootstrap.servers": f"${{env:{VARIABLE}}}",
        "kafka.config.providers": "env",
        "kafka.config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    }


def tell(job: SparkJob) -> dict[str, str]:
    """Tell each JVM its address: this process's environment is the driver's; the settings that are returned are the executors'."""
    os.environ[VARIABLE] = job.bootstrap
    return {f"spark.executorEnv.{VARIABLE}": job.task_bootstrap}


def write(batch: DataFrame, job: SparkJob, number: int) -> None:
    """Write columns key and value; the header ``streamproof`` says ``start.batch.0`` (a task's attempt is not known here)."""
    header = f"array(struct('streamproof' AS key, CAST('{job.start}.{number}.0' AS BINARY) AS value)) AS headers"
    (
        batch.selectExpr("key", "value", header)
        .write.format("kafka")
        .options(**address(job))
        .option("topic", job.output_topic)
        .option("includeHeaders", "true")
        .save()
    )
