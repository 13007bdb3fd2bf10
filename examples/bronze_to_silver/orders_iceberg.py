"""Orders from Kafka into an Iceberg table, `bronze`, as they come; and from there, as a stream, into another, `silver`.

READ is what the second query does about snapshots of `bronze` in which rows were deleted: `refuse` them, as Iceberg's source does by
default, or `skip` them.
"""

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

ORDER = "order_id string, carrier string, origin string, dest string, distance int"
CHECKPOINTS = os.environ["CHECKPOINT"]
CHANGES = {"refuse": {}, "skip": {"streaming-skip-delete-snapshots": "true", "streaming-skip-overwrite-snapshots": "true"}}


def write(rows: DataFrame, table: str) -> None:
    writer = rows.writeStream.format("iceberg").queryName(table).option("checkpointLocation", f"{CHECKPOINTS}/{table}")
    writer.toTable(f"lake.shop.{table}")


def main() -> None:
    spark = (
        SparkSession.builder.appName("orders")
        .master("local[2]")
        .config("spark.jars", os.environ["SPARK_JARS"])
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "jdbc")
        .config("spark.sql.catalog.lake.uri", os.environ["CATALOG"])
        .config("spark.sql.catalog.lake.warehouse", os.environ["WAREHOUSE"])
        .getOrCreate()
    )
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.shop")
    for table in ("bronze", "silver"):
        spark.sql(f"CREATE TABLE IF NOT EXISTS lake.shop.{table} ({ORDER}) USING iceberg")
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["BOOTSTRAP_SERVERS"])
        .option("subscribe", os.environ["TOPIC"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ["BATCH"])
        .load()
    )
    write(messages.select(from_json(col("value").cast("string"), ORDER).alias("order")).select("order.*"), "bronze")
    write(spark.readStream.format("iceberg").options(**CHANGES[os.environ["READ"]]).load("lake.shop.bronze"), "silver")
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
