"""Flights counted by when they arrive, in windows of ten seconds; in the totals over all windows each flight is counted once.

Beside the windows stand the days as such a job would have them: what arrives together is of one day, the last that was seen.
"""

from __future__ import annotations

import os

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json, substring
from pyspark.sql.functions import max as latest
from pyspark.sql.functions import sum as total

FLIGHT = "time_hour string, carrier string, distance long"
NEW = "INSERT INTO batches VALUES (%s) ON CONFLICT DO NOTHING"
ADD = """
    INSERT INTO arrived SELECT to_timestamp(floor(extract(epoch FROM now()) / 10) * 10), %s, %s, %s
    ON CONFLICT (at, carrier) DO UPDATE SET flights = arrived.flights + excluded.flights, miles = arrived.miles + excluded.miles"""
SUM = """
    INSERT INTO totals SELECT carrier, sum(flights), sum(miles) FROM arrived GROUP BY carrier
    ON CONFLICT (carrier) DO UPDATE SET flights = excluded.flights, miles = excluded.miles"""
DAY = "INSERT INTO days VALUES (%s, %s) ON CONFLICT (day) DO UPDATE SET flights = days.flights + excluded.flights"


def save(batch: DataFrame, number: int) -> None:
    flights = batch.select(from_json(col("value").cast("string"), FLIGHT).alias("flight")).select("flight.*").cache()
    carriers = flights.groupBy("carrier").agg(count("*"), total("distance")).collect()
    (day, flown) = flights.agg(latest(substring("time_hour", 1, 10)), count("*")).collect()[0]
    flights.unpersist()
    with psycopg.connect(os.environ["STREAMPROOF_POSTGRES"]) as connection:
        if flown and connection.execute(NEW, (number,)).rowcount:
            connection.cursor().executemany(ADD, [tuple(row) for row in carriers])
            connection.execute(SUM)
            connection.execute(DAY, (day, flown))


def main() -> None:
    spark = (
        SparkSession.builder.appName("arrival").master("local[2]").config("spark.jars", os.environ["STREAMPROOF_SPARK_JARS"]).getOrCreate()
    )
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["STREAMPROOF_BOOTSTRAP_SERVERS"])
        .option("subscribe", os.environ["STREAMPROOF_INPUT_TOPIC"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", os.environ["STREAMPROOF_BATCH_RECORDS"])
        .load()
    )
    messages.writeStream.foreachBatch(save).option("checkpointLocation", os.environ["STREAMPROOF_CHECKPOINT"]).start().awaitTermination()


if __name__ == "__main__":
    main()
