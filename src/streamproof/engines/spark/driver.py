"""The driver's entry point: ``python -m streamproof.engines.spark.driver RUN_FOLDER START``.

Runs one start of a streaming job until the run's folder holds ``stop`` (exit 0), or its query fails (exit 1), or it is killed. Writes
``progress.jsonl``, one line per committed micro-batch.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from streamproof.engines.spark import checkpoints, kafka_to_kafka, spark_kafka
from streamproof.engines.spark.batch_log import BatchLog
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.registry import PIPELINES, STRATEGIES
from streamproof.evidence.folder import RunFolder, append_json_line, write_atomically
from streamproof.evidence.journal import DriverReady, Recovered
from streamproof.evidence.made_anew import MadeAnew

if TYPE_CHECKING:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

POLL_S = 0.05
log = logging.getLogger("streamproof.engines.spark.driver")


def announce(job: SparkJob, jvm_pid: int | None = None, **details: Any) -> None:
    """Write ``driver.json``: the processes of this start of the driver, for those who kill it."""

    def created(pid: int | None) -> float | None:
        return None if pid is None else psutil.Process(pid).create_time()

    driver = {
        "start": job.start,
        "python_pid": os.getpid(),
        "python_created": created(os.getpid()),
        "jvm_pid": jvm_pid,
        "jvm_created": created(jvm_pid),
        **details,
    }
    write_atomically(job.run.path / "driver.json", json.dumps(driver))


def session(job: SparkJob) -> SparkSession:
    """A Spark session for the job; it is announced in ``driver.json``."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(job.name).master(job.master)
    for key, value in {**job.spark, **spark_kafka.tell(job)}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    context = spark.sparkContext
    gateway = context._gateway
    assert gateway is not None, "a driver in client mode has a gateway"
    jvm_pid = int(context._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    announce(job, jvm_pid, application=context.applicationId, ui=context.uiWebUrl)
    return spark


class ProgressLog:
    """Appends each micro-batch's progress to ``progress.jsonl`` once, in order.

    Only batches that passed over records count; Spark also reports idle triggers. A replay that finds its batch committed may pass over
    records without reading them: what counts is how far the offsets went, not Spark's count of input rows.
    """

    def __init__(self, path: Path, start: int, topic: MadeAnew | None = None) -> None:
        self._path, self._start, self._last, self._topic = path, start, -1, topic or MadeAnew()

    def update(self, reports: list[Any]) -> None:
        for report in reports:
            if report.batchId <= self._last:
                continue
            line = self._line(json.loads(report.json))
            if line["rows"] == 0:
                continue
            self._last = report.batchId
            append_json_line(self._path, line)

    def _line(self, report: Any) -> dict[str, Any]:
        source = report["sources"][0]
        begun = datetime.fromisoformat(report["timestamp"].replace("Z", "+00:00"))
        batch = report["batchId"]
        begins = self._topic.committed(checkpoints.parse(source["startOffset"]), batch - 1)
        ends = self._topic.committed(checkpoints.parse(source["endOffset"]), batch)
        # The first batch of a checkpoint has no start: its rows are all there is to count.
        passed = report["numInputRows"] if not begins else sum(end - begins.get(partition, 0) for partition, end in ends.items())
        if source["startOffset"] == source["endOffset"]:
            passed = 0  # idle, whichever topic these offsets are of
        took_ms = int(report["durationMs"].get("triggerExecution", 0))
        behind = (source.get("metrics") or {}).get("maxOffsetsBehindLatest")
        return {
            "batch": batch,
            "start": self._start,
            "rows": passed,
            "started_at": begun.isoformat(timespec="milliseconds"),
            "committed_at": (begun + timedelta(milliseconds=took_ms)).astimezone(UTC).isoformat(timespec="milliseconds"),
            "trigger_ms": took_ms,
            "durations_ms": dict(report["durationMs"]),
            "input_rows_per_s": report.get("inputRowsPerSecond"),
            "processed_rows_per_s": report.get("processedRowsPerSecond"),
            "from": begins,
            "until": ends,
            "behind_latest": int(behind) if behind is not None else None,
        }


def run(folder: RunFolder, start: int) -> int:
    job = SparkJob.read(folder, start)
    strategy, pipeline = STRATEGIES[job.strategy], PIPELINES[job.pipeline]
    announce(job)
    recovery = {} if strategy.recovers_in_sink else strategy.recover(job)
    if recovery:
        folder.journal.append(Recovered(start=start, details=recovery))
    spark = session(job)
    starting = strategy.starting_offsets(job)
    topic = MadeAnew.of(folder)
    committed = topic.committed(checkpoints.committed(job.checkpoint()), checkpoints.last(job.checkpoint() / "commits") or 0)
    resumes_at = committed or checkpoints.parse(starting)
    logs: list[ProgressLog | BatchLog] = [ProgressLog(folder.progress, start, topic)]
    if pipeline.stateful:
        logs.append(BatchLog(job))
    query = strategy.start(pipeline.transform(kafka_to_kafka.read(spark, job, starting), job), job)
    context = spark.sparkContext
    folder.journal.append(
        DriverReady(start=start, application=context.applicationId, ui=context.uiWebUrl, query=job.name, resumes_at=resumes_at)
    )

    def report() -> None:
        reports = query.recentProgress
        for log in logs:
            log.update(reports)

    stop = folder.path / "stop"
    while query.isActive and not stop.exists():
        report()
        time.sleep(POLL_S)
    failure = query.exception()
    report()
    if failure is None and pipeline.stateful:
        failure = _settle(query)
        report()
    if failure is not None:
        log.error("the query failed: %s", failure)
        return 1
    query.stop()
    report()
    strategy.recover(job)
    spark.stop()
    return 0


def _settle(query: StreamingQuery) -> StreamingQueryException | None:
    """Let a query end the batches by which its last watermark takes effect. Returns what it failed with, if it did."""
    from pyspark.errors import StreamingQueryException

    try:
        query.processAllAvailable()
    except StreamingQueryException as error:
        return error
    return None


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.WARNING)
    folder = RunFolder.open(sys.argv[1])
    code = run(folder, int(sys.argv[2]))
    sys.stdout.flush()
    sys.exit(code)


if __name__ == "__main__":
    main()
