"""Copies a topic by Spark. FORMAT is Spark's own sink, `kafka`, or `streamproof-kafka`: nothing else differs."""

import os

from pyspark.sql import SparkSession


def main() -> None:
    servers = os.environ["BOOTSTRAP_SERVERS"]
    spark = SparkSession.builder.appName("copy").master("local[2]").config("spark.jars", os.environ["SPARK_JARS"]).getOrCreate()
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", os.environ["TOPIC"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ["BATCH"])
        .load()
    )
    (
        messages.select("key", "value")
        .writeStream.format(os.environ["FORMAT"])
        .option("kafka.bootstrap.servers", servers)
        .option("topic", os.environ["OUTPUT"])
        .option("transactionalIdPrefix", os.environ["JOB"])
        .option("checkpointLocation", os.environ["CHECKPOINT"])
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main()
