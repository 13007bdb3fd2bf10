"""The pipeline ``departure_totals``: how many flights have left each origin so far, and their delays' sum.

Running totals without a watermark, in update mode: each batch delivers the total of every origin that it had flights of. The state lies in
Spark's state store below the checkpoint, and is never let go.

    value    {"key":"EWR","count":312,"sum":3400}
    key      the origin

``source_partition`` is the number of the part of the state that it came from, ``source_offset`` the count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproof.engines.spark.departures import timed
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamproof.verdict.stateful.reference import ReferenceModel


class DepartureTotals(Pipeline):
    name = "departure_totals"
    summary = "Flights per origin so far, in update mode: running state without a watermark"
    stateful = True
    output_mode = "update"

    def reference(self, options: dict[str, int], delay_ms: int) -> ReferenceModel:
        from streamproof.verdict.stateful.reference import Totals  # it brings Arrow, which a form need not wait for

        return Totals()

    def transform(self, frame: DataFrame, job: SparkJob) -> DataFrame:
        from pyspark.sql import functions

        counted = timed(frame).groupBy("key").agg(functions.count("*").alias("count"), functions.sum("value").alias("sum"))
        return counted.selectExpr(
            "CAST(key AS BINARY) AS key",
            "CAST(to_json(struct(key, count, sum)) AS BINARY) AS value",
            "spark_partition_id() AS source_partition",
            "count AS source_offset",
        )
