"""Orders from Kafka into a Delta table, by `foreachBatch`. WRITE is how: `append`, as most tutorials do, `replace`, which takes out what is
there of the batch before, or `once`, as Delta's own."""

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

ORDER = "order_id string, carrier string, origin string, dest string, distance int"
TABLE = os.environ["OUTPUT"]


def append(batch: DataFrame, number: int) -> None:
    batch.write.format("delta").mode("append").save(TABLE)


def replace(batch: DataFrame, number: int) -> None:
    if os.path.isdir(f"{TABLE}/_delta_log"):
        batch.createOrReplaceTempView("batch")
        there = f"delta.`{TABLE}` AS there USING batch ON there.order_id = batch.order_id"
        batch.sparkSession.sql(f"MERGE INTO {there} WHEN MATCHED THEN DELETE")
    append(batch, number)


def once(batch: DataFrame, number: int) -> None:
    batch.write.format("delta").mode("append").option("txnAppId", "orders").option("txnVersion", number).save(TABLE)


def main() -> None:
    spark = (
        SparkSession.builder.appName("orders")
        .master("local[2]")
        .config("spark.jars", os.environ["SPARK_JARS"])
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["BOOTSTRAP_SERVERS"])
        .option("subscribe", os.environ["TOPIC"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ["BATCH"])
        .load()
    )
    orders = messages.select(from_json(col("value").cast("string"), ORDER).alias("order")).select("order.*")
    write = {"append": append, "replace": replace, "once": once}[os.environ["WRITE"]]
    orders.writeStream.foreachBatch(write).option("checkpointLocation", os.environ["CHECKPOINT"]).start().awaitTermination()


if __name__ == "__main__":
    main()
