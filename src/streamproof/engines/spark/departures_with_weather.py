"""The pipeline ``departures_with_weather``: each flight with the weather at its origin in the hour of its departure.

A stream-stream join, left outer: flights and weather come in one topic, are told apart, and have a watermark each. Whichever of the two
comes first waits in Spark's state store for the other. A flight whose weather never comes is delivered without it, once the watermark has
passed its hour. What is late by the watermark is dropped on both sides.

    value    {"left":"0000-00000000002a","right":"0000-000000000007","left_value":12,"right_value":3902}: the two records, the flight's
             delay in minutes, the temperature in hundredths of a degree; without weather the second and the fourth are absent
    key      the origin

``source_partition`` is the number of the part of the state that it came from, ``source_offset`` the hour in ms.

Options: ``delay_ms``, the delay of both watermarks that the job sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproof.engines.spark.departures import timed
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamproof.verdict.stateful.reference import ReferenceModel


class DeparturesWithWeather(Pipeline):
    name = "departures_with_weather"
    summary = "Flights with the weather of their hour, a watermark on both: a stream-stream join"
    stateful = True
    joins = True

    def reference(self, options: dict[str, int], delay_ms: int) -> ReferenceModel:
        from streamproof.verdict.stateful.reference import Join  # it brings Arrow, which a form need not wait for

        return Join(delay_ms)

    def transform(self, frame: DataFrame, job: SparkJob) -> DataFrame:
        from pyspark.sql import functions

        flights, weather = streams(timed(frame), job.options["delay_ms"])
        return paired(flights.join(weather, functions.expr("key = weather_key AND at = weather_at"), "leftOuter"))


def streams(events: DataFrame, delay_ms: int) -> tuple[DataFrame, DataFrame]:
    """The flights and the weather, a watermark on each."""
    delay = f"{delay_ms} milliseconds"
    flights = events.where("stream = 0").withWatermark("at", delay).selectExpr("id AS left", "at", "key", "value AS left_value")
    weather = (
        events.where("stream = 1")
        .withWatermark("at", delay)
        .selectExpr("id AS right", "at AS weather_at", "key AS weather_key", "value AS right_value")
    )
    return flights, weather


def paired(joined: DataFrame) -> DataFrame:
    """What is delivered of a join of the two."""
    return joined.selectExpr(
        "CAST(key AS BINARY) AS key",
        "CAST(to_json(struct(left, right, left_value, right_value)) AS BINARY) AS value",
        "spark_partition_id() AS source_partition",
        "unix_millis(at) AS source_offset",
    )
