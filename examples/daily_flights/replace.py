"""The same job, repaired: Spark keeps the totals in its state, and the table gets each total as it is now. Written twice it is the same."""

import os

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json, substring
from pyspark.sql.functions import sum as total

FLIGHT = "time_hour string, origin string, distance long"
REPLACE = """
    INSERT INTO daily VALUES (%s, %s, %s, %s)
    ON CONFLICT (day, origin) DO UPDATE SET flights = excluded.flights, miles = excluded.miles"""


def save(batch: DataFrame, number: int) -> None:
    with psycopg.connect(os.environ["POSTGRES"]) as connection:
        connection.cursor().executemany(REPLACE, [tuple(row) for row in batch.collect()])


def main() -> None:
    spark = SparkSession.builder.appName("daily").master("local[2]").config("spark.jars", os.environ["SPARK_JARS"]).getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["BOOTSTRAP_SERVERS"])
        .option("subscribe", os.environ["TOPIC"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ["BATCH"])
        .load()
    )
    flights = messages.select(from_json(col("value").cast("string"), FLIGHT).alias("flight")).select("flight.*")
    totals = flights.groupBy(substring("time_hour", 1, 10).alias("day"), "origin").agg(count("*"), total("distance"))
    started = totals.writeStream.foreachBatch(save).outputMode("update").option("checkpointLocation", os.environ["CHECKPOINT"]).start()
    started.awaitTermination()


if __name__ == "__main__":
    main()
