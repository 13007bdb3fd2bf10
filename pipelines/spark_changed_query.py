"""A query of Spark that is another one after its first start, on the same checkpoint. A plain script, as spark-submit would run it.

    python spark_changed_query.py filter|operator

``filter``: records pass from topic to topic, later ones by a filter that all of them pass. ``operator``: totals of each carrier, with one
more aggregate later.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json, struct, to_json
from pyspark.sql.functions import sum as total

FLIGHT = "carrier string, distance long"


def totals(messages: DataFrame, changed: bool) -> DataFrame:
    flights = messages.select(from_json(col("value").cast("string"), FLIGHT).alias("flight")).select("flight.*")
    aggregates = [count("*").alias("flights"), *([total("distance").alias("miles")] if changed else [])]
    counted = flights.groupBy("carrier").agg(*aggregates)
    return counted.select(col("carrier").alias("key"), to_json(struct(*counted.columns)).alias("value"))


def main(what: str) -> None:
    servers, changed = os.environ["STREAMPROOF_BOOTSTRAP_SERVERS"], os.environ["STREAMPROOF_START"] != "1"
    spark = (
        SparkSession.builder.appName("changed")
        .master("local[2]")
        .config("spark.jars", os.environ["STREAMPROOF_SPARK_JARS"])
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", os.environ["STREAMPROOF_INPUT_TOPIC"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ["STREAMPROOF_BATCH_RECORDS"])
        .load()
    )
    if what == "operator":
        delivered = totals(messages, changed)
    else:
        delivered = messages.select("key", "value").where("value IS NOT NULL AND length(value) > 0" if changed else "true")
    (
        delivered.writeStream.format("kafka")
        .outputMode("update")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", os.environ["STREAMPROOF_OUTPUT_TOPIC"])
        .option("checkpointLocation", os.environ["STREAMPROOF_CHECKPOINT"])
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main(sys.argv[1])
