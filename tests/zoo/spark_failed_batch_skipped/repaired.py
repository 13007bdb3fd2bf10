"""Orders from Kafka into PostgreSQL. A batch that cannot be written is tried three times."""

import os
import time

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

ORDER = "order_id string, carrier string, origin string, dest string"
TABLE = "CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text)"
INSERT = "INSERT INTO orders VALUES (%s, %s, %s, %s)"
TRIES = 3


def save(batch: DataFrame, number: int) -> None:
    rows = [tuple(row) for row in batch.collect()]
    for wait_s in range(TRIES):
        try:
            with psycopg.connect(os.environ["POSTGRES"], connect_timeout=5) as database:
                database.cursor().executemany(INSERT, rows)
            return
        except psycopg.OperationalError as error:
            print(f"batch {number} could not be written: {error}", flush=True)
            time.sleep(wait_s)
    raise RuntimeError(f"batch {number} could not be written")


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
