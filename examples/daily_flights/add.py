"""Flights and miles of each day and airport. Each micro-batch is counted, and its counts are added to those in the table."""

import os

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json, substring
from pyspark.sql.functions import sum as total

FLIGHT = "time_hour string, origin string, distance long"
ADD = """
    INSERT INTO daily VALUES (%s, %s, %s, %s)
    ON CONFLICT (day, origin) DO UPDATE SET flights = daily.flights + excluded.flights, miles = daily.miles + excluded.miles"""


def save(batch: DataFrame, number: int) -> None:
    counted = batch.groupBy("day", "origin").agg(count("*"), total("distance")).collect()
    with psycopg.connect(os.environ["POSTGRES"], autocommit=True) as connection:
        for row in counted:
            connection.execute(ADD, tuple(row))


def main() -> None:
    spark = SparkSession.builder.appName("daily").master("local[2]").config("spark.jars", os.environ["SPARK_JARS"]).getOrCreate()
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["BOOTSTRAP_SERVERS"])
        .option("subscribe", os.environ["TOPIC"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ["BATCH"])
        .load()
    )
    flights = messages.select(from_json(col("value").cast("string"), FLIGHT).alias("flight")).select("flight.*")
    days = flights.withColumn("day", substring("time_hour", 1, 10))
    days.writeStream.foreachBatch(save).option("checkpointLocation", os.environ["CHECKPOINT"]).start().awaitTermination()


if __name__ == "__main__":
    main()
