"""Orders from Kafka into PostgreSQL, by four tasks of equal size. A part of a batch that is marked as done is passed by.

A task that is killed sees the end of its rows too early: each knows how many it has to write.
"""

import os
from collections.abc import Iterator

import psycopg
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col, from_json, spark_partition_id

ORDER = "order_id string, carrier string, origin string, dest string"
TABLES = """
CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text);
CREATE TABLE IF NOT EXISTS parts (batch bigint, part int, PRIMARY KEY (batch, part));
"""
MARK = "INSERT INTO parts VALUES (%s, %s) ON CONFLICT DO NOTHING"
INSERT = "INSERT INTO orders VALUES (%s, %s, %s, %s)"
PARTS = 4


def save(batch: DataFrame, number: int) -> None:
    parts = batch.repartition(PARTS, col("order_id"))
    sizes: dict[int, int] = dict(parts.groupBy(spark_partition_id()).count().collect())

    def save_part(rows: Iterator[Row]) -> None:
        part = TaskContext.get().partitionId()
        with psycopg.connect(os.environ["POSTGRES"]) as database:
            if database.execute(MARK, [number, part]).rowcount == 1:
                orders = [tuple(row) for row in rows]
                if len(orders) != sizes.get(part, 0):
                    raise RuntimeError(f"part {part}: came {len(orders)} of its rows")
                database.cursor().executemany(INSERT, orders)

    parts.foreachPartition(save_part)


def main() -> None:
    with psycopg.connect(os.environ["POSTGRES"]) as database:
        database.execute(TABLES)
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
