"""The pipeline ``first_departures``: of the flights from an origin the first, and none more until the watermark has gone past it.

De-duplication by a key within the watermark: a flight passes when the state does not hold its origin. The state then holds it until the
watermark has passed the flight's time and the delay. What is late by the watermark is dropped.

    value    {"id":"0000-00000000002a"}: the record that passed
    key      the origin

``source_partition`` is the number of the part of the state that it came from, ``source_offset`` the flight's time in ms.

Options: ``delay_ms``, the watermark's delay that the job sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproof.engines.spark.departures import timed
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamproof.verdict.stateful.reference import ReferenceModel


class FirstDepartures(Pipeline):
    name = "first_departures"
    summary = "The first flight from each origin, again and again: de-duplication within the watermark"
    stateful = True

    def reference(self, options: dict[str, int], delay_ms: int) -> ReferenceModel:
        from streamproof.verdict.stateful.reference import Deduplication  # it brings Arrow, which a form need not wait for

        return Deduplication(delay_ms)

    def transform(self, frame: DataFrame, job: SparkJob) -> DataFrame:
        events = timed(frame).withWatermark("at", f"{job.options['delay_ms']} milliseconds")
        return events.dropDuplicatesWithinWatermark(["key"]).selectExpr(
            "CAST(key AS BINARY) AS key",
            "CAST(to_json(struct(id)) AS BINARY) AS value",
            "spark_partition_id() AS source_partition",
            "unix_millis(at) AS source_offset",
        )
