"""The pipeline ``departure_sessions``: how many flights leave each origin in each stretch without a gap, and their delays' sum.

Session windows of event time with a watermark, in append mode: a session is delivered once, when the watermark has passed its end. Two that
an event comes to lie between become one. The state (the open sessions) lies in Spark's state store below the checkpoint.

    value    {"key":"EWR","begin":1357020000000,"end":1357083600000,"count":312,"sum":3400}, times in ms
    key      the origin

``source_partition`` is the number of the part of the state that it came from, ``source_offset`` the session's begin.

Options: ``length_ms``, the gap that ends a session, and ``delay_ms``, the watermark's delay that the job sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproof.engines.spark.departures import timed
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamproof.verdict.stateful.reference import ReferenceModel


class DepartureSessions(Pipeline):
    name = "departure_sessions"
    summary = "Flights per origin and stretch of time without a gap, with a watermark: session windows"
    stateful = True

    def reference(self, options: dict[str, int], delay_ms: int) -> ReferenceModel:
        from streamproof.verdict.stateful.reference import Sessions  # it brings Arrow, which a form need not wait for

        return Sessions(options["length_ms"], delay_ms)

    def transform(self, frame: DataFrame, job: SparkJob) -> DataFrame:
        from pyspark.sql import functions

        options = job.options
        session = functions.session_window("at", f"{options['length_ms']} milliseconds").alias("session")
        counted = (
            timed(frame)
            .withWatermark("at", f"{options['delay_ms']} milliseconds")
            .groupBy(session, "key")
            .agg(functions.count("*").alias("count"), functions.sum("value").alias("sum"))
        )
        times = "unix_millis(session.start) AS begin, unix_millis(session.end) AS end"
        return counted.selectExpr(
            "CAST(key AS BINARY) AS key",
            f"CAST(to_json(struct(key, {times}, count, sum)) AS BINARY) AS value",
            "spark_partition_id() AS source_partition",
            "unix_millis(session.start) AS source_offset",
        )
