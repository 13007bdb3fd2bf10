"""The pipeline ``departures_near_weather``: each flight with each weather at its origin from some time before to as long after.

A stream-stream join, inner, by an interval of time: flights and weather come in one topic, are told apart, and have a watermark each. Each
waits in Spark's state store for the other as long as the interval and the watermarks ask for. A flight without weather is not delivered.

    value    {"left":"0000-00000000002a","right":"0000-000000000007","left_value":12,"right_value":3902}: the two records, the flight's
             delay in minutes, the temperature in hundredths of a degree
    key      the origin

``source_partition`` is the number of the part of the state that it came from, ``source_offset`` the flight's hour in ms.

Options: ``length_ms``, how long before and after, and ``delay_ms``, the delay of both watermarks that the job sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproof.engines.spark.departures import timed
from streamproof.engines.spark.departures_with_weather import paired, streams
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamproof.verdict.stateful.reference import ReferenceModel


class DeparturesNearWeather(Pipeline):
    name = "departures_near_weather"
    summary = "Flights with the weather from before to after them, a watermark on both: an inner join by an interval"
    stateful = True
    joins = True

    def reference(self, options: dict[str, int], delay_ms: int) -> ReferenceModel:
        from streamproof.verdict.stateful.reference import Join  # it brings Arrow, which a form need not wait for

        return Join(delay_ms, outer=False, before_ms=options["length_ms"], after_ms=options["length_ms"])

    def transform(self, frame: DataFrame, job: SparkJob) -> DataFrame:
        from pyspark.sql import functions

        flights, weather = streams(timed(frame), job.options["delay_ms"])
        around = f"make_dt_interval(0, 0, 0, {job.options['length_ms'] / 1000:.3f})"
        near = f"key = weather_key AND weather_at >= at - {around} AND weather_at <= at + {around}"
        return paired(flights.join(weather, functions.expr(near), "inner"))
