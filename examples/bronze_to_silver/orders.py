"""Orders from Kafka into a Delta table, `bronze`, as they come; and from there, as a stream, into another, `silver`.

READ is what the second query does about versions of `bronze` in which rows were changed: `refuse` them, as Delta's source does by default,
`skip` them, or `ignore` that they were changed.
"""

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

ORDER = "order_id string, carrier string, origin string, dest string, distance int"
BRONZE, SILVER = os.environ["STATE"] + "/bronze", os.environ["OUTPUT"]
CHECKPOINTS = os.environ["CHECKPOINT"]
CHANGES = {"refuse": {}, "skip": {"skipChangeCommits": "true"}, "ignore": {"ignoreChanges": "true"}}


def write(rows: DataFrame, table: str) -> None:
    name = os.path.basename(table)
    rows.writeStream.format("delta").queryName(name).option("checkpointLocation", f"{CHECKPOINTS}/{name}").start(table)


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
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{BRONZE}` ({ORDER}) USING delta")
    write(orders, BRONZE)
    write(spark.readStream.format("delta").options(**CHANGES[os.environ["READ"]]).load(BRONZE), SILVER)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
