"""The pipeline ``kafka_to_kafka``: read events, note where each came from, pass them on under the same key.

The value leaves as it came, with one field appended: ``"source":{"partition":p,"offset":o}``. No shuffle lies between source and
sink, so that one task reads one input partition and writes it: the protocols of the strategies rely on that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproof.engines.spark import spark_kafka
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "kafka_to_kafka"


def read(spark: SparkSession, job: SparkJob, starting_offsets: str = "earliest") -> DataFrame:
    """The input topic as a stream, bounded to ``job.batch_records`` a micro-batch."""
    return (
        spark.readStream.format("kafka")
        .options(**spark_kafka.address(job))
        .option("subscribe", job.input_topic)
        .option("startingOffsets", starting_offsets)
        .option("maxOffsetsPerTrigger", job.batch_records)
        .option("failOnDataLoss", str(job.fail_on_data_loss).lower())
        .option("kafka.max.poll.records", 5000)
        .load()
    )


def transform(frame: DataFrame) -> DataFrame:
    """Columns ``key`` and ``value`` (binary) for the sink, ``source_partition`` and ``source_offset`` for the strategies.

    A column named ``partition`` would be taken by Spark's Kafka sink as the partition to write to.
    """
    return frame.selectExpr(
        "key",
        # On bytes: to look for the last character of a string, Spark walks through all of it.
        """concat(substring(value, 1, octet_length(value) - 1),
           CAST(concat(',"source":{"partition":', partition, ',"offset":', offset, '}}') AS BINARY)) AS value""",
        "partition AS source_partition",
        "offset AS source_offset",
    )


class KafkaToKafka(Pipeline):
    name = NAME
    summary = "Events pass on as they came, with where each came from"

    def transform(self, frame: DataFrame, job: SparkJob) -> DataFrame:
        return transform(frame)
