"""``batches.jsonl``: each micro-batch that a stateful job carried out, also without records, with its watermark and its late rows.

What the lines mean is told in :mod:`streamproof.evidence.batches`. A batch that was committed by a start which died before it could report
it is written down by the next start, from Spark's checkpoint.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from streamproof.engines.spark import checkpoints
from streamproof.engines.spark.job import SparkJob
from streamproof.evidence.batches import read_batches
from streamproof.evidence.folder import append_json_line
from streamproof.evidence.journal import DriverReady


class BatchLog:
    """The log of one start of the driver."""

    def __init__(self, job: SparkJob) -> None:
        self._path, self._start, self._last = job.run.batches, job.start, -1
        self._catch_up(job)

    def _catch_up(self, job: SparkJob) -> None:
        checkpoint = job.checkpoint()
        committed = checkpoints.last(checkpoint / "commits")
        if committed is None:
            return
        written = {batch.number for batch in read_batches(self._path)}
        earlier = [event.start for event in job.run.journal.all(DriverReady) if event.start < job.start]
        for number in range(max(written, default=-1) + 1, committed + 1):
            until, watermark_ms = checkpoints.until(checkpoint, number), checkpoints.watermark(checkpoint, number)
            at = datetime.fromtimestamp((checkpoint / "commits" / str(number)).stat().st_mtime, UTC)
            self._write(number, max(earlier, default=job.start), until, watermark_ms, None, at)

    def update(self, reports: list[Any]) -> None:
        """Take in what Spark reported of late. A trigger that found nothing to do carried out no batch."""
        for query_report in reports:
            if query_report.batchId <= self._last:
                continue
            report = json.loads(query_report.json)
            if "addBatch" not in report["durationMs"]:
                continue
            self._last = query_report.batchId
            until = checkpoints.parse(report["sources"][0]["endOffset"])
            mark = (report.get("eventTime") or {}).get("watermark")
            dropped = sum(operator["numRowsDroppedByWatermark"] for operator in report["stateOperators"])
            at = datetime.fromisoformat(report["timestamp"].replace("Z", "+00:00"))
            at += timedelta(milliseconds=int(report["durationMs"].get("triggerExecution", 0)))
            watermark_ms = None if mark is None else round(datetime.fromisoformat(mark.replace("Z", "+00:00")).timestamp() * 1000)
            self._write(report["batchId"], self._start, until, watermark_ms, dropped, at)

    def _write(self, batch: int, start: int, until: dict[str, int], watermark_ms: int | None, dropped: int | None, at: datetime) -> None:
        line = {"batch": batch, "start": start, "until": until, "watermark_ms": watermark_ms, "dropped": dropped}
        append_json_line(self._path, {**line, "committed_at": at.astimezone(UTC).isoformat(timespec="milliseconds")})
