"""Orders from Kafka into an Iceberg table. WRITE is how: `append` in `foreachBatch`, as most tutorials do, or `sink`, Iceberg's own.
CATALOG is the address of a JDBC catalog, or `hadoop`: then the file system is the catalog."""

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

ORDER = "order_id string, carrier string, origin string, dest string, distance int"


def append(batch: DataFrame, number: int) -> None:
    batch.writeTo("lake.shop.orders").append()


def main() -> None:
    catalog = os.environ["CATALOG"]
    spark = (
        SparkSession.builder.appName("orders")
        .master("local[2]")
        .config("spark.jars", os.environ["SPARK_JARS"])
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop" if catalog == "hadoop" else "jdbc")
        .config("spark.sql.catalog.lake.uri", catalog)
        .config("spark.sql.catalog.lake.warehouse", os.environ["WAREHOUSE"])
        .getOrCreate()
    )
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.shop")
    spark.sql(f"CREATE TABLE IF NOT EXISTS lake.shop.orders ({ORDER}) USING iceberg")
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["BOOTSTRAP_SERVERS"])
        .option("subscribe", os.environ["TOPIC"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ["BATCH"])
        .load()
    )
    orders = messages.select(from_json(col("value").cast("string"), ORDER).alias("order")).select("order.*")
    writer = orders.writeStream.option("checkpointLocation", os.environ["CHECKPOINT"])
    if os.environ["WRITE"] == "append":
        writer.foreachBatch(append).start().awaitTermination()
    else:
        writer.format("iceberg").toTable("lake.shop.orders").awaitTermination()


if __name__ == "__main__":
    main()
