"""Orders from Kafka into a folder of Parquet files, which others read by listing it."""

import fcntl
import os
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

ORDER = "order_id string, carrier string, origin string, dest string"


def save(batch: DataFrame, number: int) -> None:
    batch.write.mode("overwrite").parquet(f"{os.environ['FOLDER']}/batch={number}")


def main() -> None:
    one_instance = open(Path(os.environ["STATE"]) / "lock", "w")  # noqa: SIM115 - held while the process lives
    fcntl.flock(one_instance, fcntl.LOCK_EX)
    spark = SparkSession.builder.appName("orders").master("local[2]").config("spark.jars", os.environ["SPARK_JARS"]).getOrCreate()
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["BOOTSTRAP_SERVERS"])
        .option("subscribe", os.environ["TOPIC"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ["BATCH"])
        .load()
    )
    orders = messages.select(from_json(col("value").cast("string"), ORDER).alias("order")).select("order.*")
    orders.writeStream.foreachBatch(save).option("checkpointLocation", os.environ["CHECKPOINT"]).start().awaitTermination()


if __name__ == "__main__":
    main()
