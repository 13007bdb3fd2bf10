"""Stateful queries on a real Spark, fed batch by batch: what the checkers of stateful output are held against.

Each micro-batch is one file of events; Spark reads one file a trigger. What comes back is what each batch delivered, and what Spark
reported of it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id long, stream int, at long, key string, value long"
RUN_S = 120.0
Event = tuple[int, int, str, int]  # stream, event time in ms, key, value


@dataclass
class Ran:
    """``rows`` are (batch, row) as delivered; ``reports`` Spark's progress of each batch that ran, those without data too."""

    rows: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)


def session() -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("reference")
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Duser.timezone=UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(
    spark: SparkSession,
    folder: Path,
    batches: Sequence[Sequence[Event]],
    query: Callable[[DataFrame], DataFrame],
    mode: str = "append",
    restart_before: int | None = None,
) -> Ran:
    """Run ``query`` over these batches; with ``restart_before`` the query is stopped and started again before that batch."""
    source = folder / "in"
    source.mkdir(parents=True)
    ran, number = Ran(), 0
    parts = [batches] if restart_before is None else [batches[:restart_before], batches[restart_before:]]
    for part in parts:
        for batch in part:
            lines = [
                dict(zip(("id", "stream", "at", "key", "value"), (number * 1000 + at, *event), strict=True))
                for at, event in enumerate(batch)
            ]
            path = source / f"{number:05d}.json"
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
            os.utime(path, (1_600_000_000 + number * 10,) * 2)
            number += 1
        _drive(spark, folder, sum(len(batch) for batch in part), query, mode, ran)
    return ran


def _drive(spark: SparkSession, folder: Path, events: int, query: Callable[[DataFrame], DataFrame], mode: str, ran: Ran) -> None:
    from pyspark.sql import functions as f

    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    frame = query(frame.withColumn("at", f.timestamp_millis("at")))

    def deliver(batch: DataFrame, number: int) -> None:
        ran.rows.extend((number, row.asDict(recursive=True)) for row in batch.collect())

    running = frame.writeStream.foreachBatch(deliver).outputMode(mode).option("checkpointLocation", str(folder / "checkpoint")).start()
    begun, seen, quiet = time.monotonic(), -1, 0
    try:
        read = 0
        while (read < events or quiet < 20) and time.monotonic() - begun < RUN_S:
            time.sleep(0.05)
            quiet += 1
            for report in running.recentProgress:
                found = json.loads(report.json)
                if found["batchId"] > seen and "addBatch" in found["durationMs"]:
                    seen, quiet = found["batchId"], 0
                    read += min(found["numInputRows"], events)
                    ran.reports.append(found)
            if (failure := running.exception()) is not None:
                raise failure
    finally:
        running.stop()
