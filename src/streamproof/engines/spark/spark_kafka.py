"""Spark's own way to Kafka: where its source and sink find it, and a micro-batch written from ``foreachBatch``.

One option, ``kafka.bootstrap.servers``, serves the driver and every executor. Where these reach Kafka at addresses of their own, the option
names an environment variable, which the Kafka client of each JVM looks up for itself (Kafka's ``EnvVarConfigProvider``, KIP-421). In the
same way a login is looked up in a file: no option of the source or the sink, and so nothing that Spark shows or writes, holds a secret.

Checked against: Spark 4.1 with kafka-clients 3.9 (options that begin with ``kafka.`` reach the client as they are).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from streamproof.engines.spark.job import SparkJob
from streamproof.kafka import servers
from streamproof.kafka.servers import Access

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


VARIABLE = "STREAMPROOF_KAFKA"


def address(job: SparkJob) -> dict[str, str]:
    """The options by which Spark's source or sink finds Kafka."""
    access, providers = Access.of(job.access), dict[str, str]()
    at = job.bootstrap
    if job.task_bootstrap != job.bootstrap:
        at, providers["env"] = f"${{env:{VARIABLE}}}", "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    if access.mechanism:
        providers["file"] = servers.FILE_PROVIDER
    options = {"bootstrap.servers": at, **servers.java(access)}
    if providers:
        options |= {"config.providers": ",".join(providers), **{f"config.providers.{name}.class": kind for name, kind in providers.items()}}
    return {f"kafka.{name}": value for name, value in options.items()}


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
