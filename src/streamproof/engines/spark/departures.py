"""The pipeline ``departures``: how many flights leave each origin in each window of scheduled time, and their delays' sum.

Windows of event time, tumbling or sliding, with a watermark, in append mode: a window is delivered once, when the watermark has passed its
end, and an event that comes later still is dropped. The state (the open windows) lies in Spark's state store below the checkpoint.

    value    {"key":"EWR","begin":1357020000000,"count":12,"sum":340}, times in ms
    key      the origin

The result of a window comes out of the task that holds its part of the state. ``source_partition`` is that part's number, which the
checkpoint keeps, and ``source_offset`` the window's begin: a ledger that is keyed by them knows a replayed batch again.

Options: ``length_ms``, ``slide_ms``, and ``delay_ms``, the watermark's delay that the job sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamproof.verdict.stateful.reference import ReferenceModel

EVENT = "id string, payload struct<stream: int, at: bigint, key: string, value: bigint>"


def timed(frame: DataFrame) -> DataFrame:
    """The events of the input: ``id``, ``stream``, ``at`` (event time), ``key`` and ``value``."""
    parsed = frame.selectExpr(f"from_json(CAST(value AS STRING), '{EVENT}') AS event")
    return parsed.selectExpr(
        "substring(event.id, 1, 17) AS id",
        "event.payload.stream AS stream",
        "timestamp_millis(event.payload.at) AS at",
        "event.payload.key AS key",
        "event.payload.value AS value",
    )


class Departures(Pipeline):
    name = "departures"
    summary = "Flights per origin and window of scheduled time, with a watermark: a windowed aggregate"
    stateful = True

    def reference(self, options: dict[str, int], delay_ms: int) -> ReferenceModel:
        from streamproof.verdict.stateful.reference import Windows  # it brings Arrow, which a form need not wait for

        return Windows(options["length_ms"], options["slide_ms"], delay_ms)

    def transform(self, frame: DataFrame, job: SparkJob) -> DataFrame:
        from pyspark.sql import functions

        options = job.options
        window = functions.window("at", f"{options['length_ms']} milliseconds", f"{options['slide_ms']} milliseconds")
        counted = (
            timed(frame)
            .withWatermark("at", f"{options['delay_ms']} milliseconds")
            .groupBy(window, "key")
            .agg(functions.count("*").alias("count"), functions.sum("value").alias("sum"))
        )
        return counted.selectExpr(
            "CAST(key AS BINARY) AS key",
            "CAST(to_json(struct(key, unix_millis(window.start) AS begin, count, sum)) AS BINARY) AS value",
            "spark_partition_id() AS source_partition",
            "unix_millis(window.start) AS source_offset",
        )
