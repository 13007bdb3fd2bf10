"""A PySpark job with a session of its own on a Spark that it is given: orders from Kafka to Kafka, at-least-once by the checkpoint.

python own_session.py [python]    with ``python`` each record passes through a Python worker
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf


def session() -> SparkSession:
    builder = SparkSession.builder.appName("orders").master(os.environ["SPARK_MASTER"])
    for line in Path(os.environ["SPARK_PROPERTIES"]).read_text().splitlines():
        name, _, value = line.partition(" ")
        builder = builder.config(name, value)
    builder = builder.config("spark.jars", os.environ["SPARK_JARS"]).config("spark.executor.memory", "512m").config("spark.cores.max", "4")
    return builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()


def main() -> None:
    messages = (
        session()
        .readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["BOOTSTRAP_SERVERS"])
        .option("subscribe", os.environ["TOPIC"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ["BATCH"])
        .load()
    )
    value = col("value")
    if sys.argv[1:] == ["python"]:
        value = udf(lambda value: bytes(value), "binary")(value)
    (
        messages.select("key", value.alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["BOOTSTRAP_SERVERS"])
        .option("topic", os.environ["OUTPUT"])
        .option("checkpointLocation", os.environ["CHECKPOINT"])
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main()
