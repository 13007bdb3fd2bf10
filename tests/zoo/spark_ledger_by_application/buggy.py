"""Orders from Kafka into PostgreSQL. A batch that this writer has written is passed by when it comes again."""

import os

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

ORDER = "order_id string, carrier string, origin string, dest string"
TABLES = """
CREATE TABLE IF NOT EXISTS orders (order_id text, carrier text, origin text, dest text);
CREATE TABLE IF NOT EXISTS batches (writer text, number bigint, PRIMARY KEY (writer, number));
"""
MARK = "INSERT INTO batches VALUES (%s, %s) ON CONFLICT DO NOTHING"
INSERT = "INSERT INTO orders VALUES (%s, %s, %s, %s)"


def save(batch: DataFrame, number: int) -> None:
    writer = batch.sparkSession.sparkContext.applicationId
    with psycopg.connect(os.environ["POSTGRES"]) as database:
        if database.execute(MARK, [writer, number]).rowcount == 0:
            return
        database.cursor().executemany(INSERT, [tuple(row) for row in batch.collect()])


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
