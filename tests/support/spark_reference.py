"""Stateful queries on a real Spark, fed batch by batch: what the checkers of stateful output are held against.

``python -m tests.support.spark_reference FOLDER`` in a process of its own: reads cases from ``FOLDER/cases.json`` and writes what Spark did
to ``FOLDER/ran.json``. Each micro-batch is one file of events, of which Spark reads one a trigger; a query is stopped and started again
where a case says so.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENT = "id long, stream int, at long, key string, value long"
RUN_S = 120.0
QUIET_S = 1.5
POLL_S = 0.05
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Duser.timezone=UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def query(events: DataFrame, kind: str, known: dict[str, Any]) -> tuple[DataFrame, str]:
    """The query of a case, with columns as a pipeline delivers them, and its output mode."""
    from pyspark.sql import functions as f

    def late(frame: DataFrame) -> DataFrame:
        return frame.withWatermark("at", f"{known['delay_ms']} milliseconds")

    sums = (f.count("*").alias("count"), f.sum("value").alias("sum"))
    if kind == "Windows":
        window = f.window("at", f"{known['length_ms']} milliseconds", f"{known['slide_ms']} milliseconds")
        found = late(events).groupBy(window, "key").agg(*sums)
        return found.selectExpr("key", "unix_millis(window.start) AS begin", "count", "sum"), "append"
    if kind == "Sessions":
        found = late(events).groupBy(f.session_window("at", f"{known['gap_ms']} milliseconds").alias("w"), "key").agg(*sums)
        return found.selectExpr("key", "unix_millis(w.start) AS begin", "unix_millis(w.end) AS end", "count", "sum"), "append"
    if kind == "Deduplication":
        return late(events).dropDuplicatesWithinWatermark(["key"]).selectExpr("'0-' || lower(hex(id)) AS id"), "append"
    if kind == "Totals":
        return events.groupBy("key").agg(*sums), "update"
    left = late(events.where("stream = 0")).selectExpr("'0-' || lower(hex(id)) AS left", "at", "key", "value AS left_value")
    right = late(events.where("stream = 1")).withColumnsRenamed({"at": "other_at", "key": "other_key", "value": "right_value"})
    right = right.selectExpr("'0-' || lower(hex(id)) AS right", "other_at", "other_key", "right_value")
    before, after = (f"INTERVAL '{known[name] / 1000:.3f}' SECOND" for name in ("before_ms", "after_ms"))
    on = "key = other_key AND at = other_at"
    if known["before_ms"] or known["after_ms"]:
        on = f"key = other_key AND other_at >= at - {before} AND other_at <= at + {after}"
    joined = left.join(right, f.expr(on), "leftOuter" if known["outer"] else "inner")
    return joined.select("left", "right", "left_value", "right_value"), "append"


def run(spark: SparkSession, folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    """One case: the batches that ran, each with its start, the file that it read (none: null) and its dropped rows; and the results."""
    source, ran = folder / "in", {"batches": [], "results": []}
    source.mkdir(parents=True)
    number = identity = 0
    for start, files in enumerate(case["starts"], 1):
        for file in files:
            lines = []
            for event in file:
                lines.append(json.dumps({"id": identity, **event}))
                identity += 1
            path = source / f"{number:05d}.json"
            path.write_text("\n".join(lines) + "\n")
            os.utime(path, (1_600_000_000 + number * 10,) * 2)
            number += 1
        _drive(spark, folder, case, start, number, ran)
    return ran


def _drive(spark: SparkSession, folder: Path, case: dict[str, Any], start: int, files: int, ran: dict[str, Any]) -> None:
    from pyspark.sql import functions as f

    events = spark.readStream.schema(EVENT).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    frame, mode = query(events.withColumn("at", f.timestamp_millis("at")), case["kind"], case["known"])

    def deliver(batch: DataFrame, number: int) -> None:
        ran["results"] += [{name: value for name, value in row.asDict().items() if value is not None} for row in batch.collect()]

    running = frame.writeStream.foreachBatch(deliver).outputMode(mode).option("checkpointLocation", str(folder / "checkpoint")).start()
    begun = quiet = time.monotonic()
    seen, read = -1, sum(batch["file"] is not None for batch in ran["batches"])
    try:
        while (read < files or time.monotonic() - quiet < QUIET_S) and time.monotonic() - begun < RUN_S:
            time.sleep(POLL_S)
            for report in running.recentProgress:
                found = json.loads(report.json)
                if found["batchId"] <= seen or "addBatch" not in found["durationMs"]:
                    continue
                seen, quiet = found["batchId"], time.monotonic()
                dropped = sum(operator["numRowsDroppedByWatermark"] for operator in found["stateOperators"])
                file = read if found["numInputRows"] else None
                read += file is not None
                mark = (found.get("eventTime") or {}).get("watermark")
                ran["batches"].append({"start": start, "file": file, "dropped": dropped, "watermark": mark})
            if (failure := running.exception()) is not None:
                raise failure
    finally:
        running.stop()


def main() -> None:
    from pyspark.sql import SparkSession

    folder = Path(sys.argv[1])
    builder = SparkSession.builder.master("local[2]").appName("reference")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    cases = json.loads((folder / "cases.json").read_text())
    (folder / "ran.json").write_text(json.dumps({name: run(spark, folder / name, case) for name, case in cases.items()}))
    spark.stop()


if __name__ == "__main__":
    main()
