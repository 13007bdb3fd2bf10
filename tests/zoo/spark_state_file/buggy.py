"""Orders from Kafka into PostgreSQL, each once, also where the topic has it twice."""

import os
from pathlib import Path

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

ORDER = "order_id string, carrier string, origin string, dest string"
TABLE = "CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text)"
INSERT = "INSERT INTO orders VALUES (%s, %s, %s, %s)"
WRITTEN = Path(os.environ["STATE"]) / "written"


def save(batch: DataFrame, number: int) -> None:
    written = set(WRITTEN.read_text().split()) if WRITTEN.exists() else set()
    orders = [row for row in batch.collect() if row.order_id not in written]
    with psycopg.connect(os.environ["POSTGRES"]) as database:
        database.cursor().executemany(INSERT, [tuple(row) for row in orders])
    with WRITTEN.open("a") as file:
        file.writelines(f"{row.order_id}\n" for row in orders)


def main() -> None:
    with psycopg.connect(os.environ["POSTGRES"]) as database:
        database.execute(TABLE)
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
