"""From topic to topic by one query of Spark, in the mode that its arguments name. A plain script, as spark-submit would run it.

    python spark_modes.py micro-batch|continuous|real-time [--aggregate]

The topic is read by `subscribe`; TOPICS=pattern or TOPICS=assign in the environment read it otherwise.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

CHECKPOINT_EVERY = "1 second"
PARTITIONS = 4  # of the input as a run makes it: what `assign` knows of


def topics(name: str) -> tuple[str, str]:
    """The option of Spark's Kafka source that says what is read, and its value."""
    kind = os.environ.get("TOPICS", "subscribe")
    if kind == "assign":
        return "assign", json.dumps({name: list(range(PARTITIONS))})
    return ("subscribePattern", f"{name}.*") if kind == "pattern" else ("subscribe", name)


def triggered(writer: DataStreamWriter, mode: str, spark: SparkSession) -> DataStreamWriter:
    if mode == "continuous":
        return writer.trigger(continuous=CHECKPOINT_EVERY)
    if mode == "real-time":  # pyspark 4.1 has no word for it
        trigger: Any = spark._jvm.org.apache.spark.sql.streaming.Trigger  # type: ignore[union-attr]
        writer._jwrite = writer._jwrite.trigger(trigger.RealTime("5 seconds"))
        return writer.outputMode("update")
    return writer


def main(mode: str, aggregate: bool) -> None:
    servers = os.environ["STREAMPROOF_BOOTSTRAP_SERVERS"]
    spark = (
        SparkSession.builder.appName("modes")
        .master("local[6]")  # continuous and real-time processing hold a core for each partition as long as they run
        .config("spark.jars", os.environ["STREAMPROOF_SPARK_JARS"])
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    option, value = topics(os.environ["STREAMPROOF_INPUT_TOPIC"])
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option(option, value)
    if mode == "micro-batch":
        source = source.option("maxOffsetsPerTrigger", os.environ["STREAMPROOF_BATCH_RECORDS"])
    messages = source.option("startingOffsets", "earliest").load().select("key", "value")
    if aggregate:
        messages = messages.groupBy("key").count().selectExpr("key", "CAST(count AS STRING) AS value")
    writer = (
        messages.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", os.environ["STREAMPROOF_OUTPUT_TOPIC"])
        .option("checkpointLocation", os.environ["STREAMPROOF_CHECKPOINT"])
    )
    if aggregate:
        writer = writer.outputMode("update")
    triggered(writer, mode, spark).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], "--aggregate" in sys.argv[2:])
