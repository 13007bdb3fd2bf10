"""Orders from Kafka into PostgreSQL, written by the tasks. A part that the ledger has is passed by."""

import os
from collections.abc import Iterator
from itertools import chain

import psycopg
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col, from_json

ORDER = "order_id string, carrier string, origin string, dest string"
TABLES = """
CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text);
CREATE TABLE IF NOT EXISTS parts (batch bigint, part int, PRIMARY KEY (batch, part));
"""
DONE = "SELECT 1 FROM parts WHERE batch = %s AND part = %s"
MARK = "INSERT INTO parts VALUES (%s, %s)"
INSERT = "INSERT INTO orders VALUES (%s, %s, %s, %s)"


def save(batch: DataFrame, number: int) -> None:
    def save_part(rows: Iterator[Row]) -> None:
        first = next(rows, None)
        if first is None:
            return
        rows, part = chain([first], rows), first.part
        with psycopg.connect(os.environ["POSTGRES"]) as database:
            if database.execute(DONE, [number, part]).fetchone():
                return
            database.cursor().executemany(INSERT, [tuple(row)[:4] for row in rows])
            database.execute(MARK, [number, part])

    batch.foreachPartition(save_part)


def main() -> None:
    with psycopg.connect(os.environ["POSTGRES"]) as database:
        database.execute(TABLES)
    spark = SparkSession.builder.appName("orders").master("local[2,4]").config("spark.jars", os.environ["SPARK_JARS"]).getOrCreate()
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["BOOTSTRAP_SERVERS"])
        .option("subscribe", os.environ["TOPIC"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ["BATCH"])
        .load()
    )
    order = from_json(col("value").cast("string"), ORDER)
    orders = messages.select(order.alias("order"), col("partition").alias("part")).select("order.*", "part")
    orders.writeStream.foreachBatch(save).option("checkpointLocation", os.environ["CHECKPOINT"]).start().awaitTermination()


if __name__ == "__main__":
    main()
