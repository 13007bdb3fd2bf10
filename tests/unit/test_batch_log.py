"""``batches.jsonl``: every batch that a stateful job carried out is there once, also one that was committed by a start that then died."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streamproof.engines.spark import checkpoints
from streamproof.engines.spark.batch_log import BatchLog
from streamproof.engines.spark.job import SparkJob
from streamproof.evidence.batches import Batch, read_batches
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import DriverReady
from tests.support.jobs import spark_job

JOB = spark_job("", "two_phase_commit", "departures")
AT = "2026-01-01T00:00:00.000Z"


@dataclass
class Report:
    """A progress report of Spark, as the driver gets it."""

    batchId: int  # noqa: N815
    rows: int = 5
    ran: bool = True
    mark: str | None = "2013-01-01T10:00:00.000Z"
    dropped: tuple[int, ...] = (2,)

    @property
    def json(self) -> str:
        durations = {"triggerExecution": 1500, **({"addBatch": 900} if self.ran else {})}
        offsets = {"in": {"0": 10 * (self.batchId + 1)}}
        found: dict[str, Any] = {"batchId": self.batchId, "numInputRows": self.rows, "timestamp": AT, "durationMs": durations}
        found["eventTime"] = {} if self.mark is None else {"watermark": self.mark}
        found["stateOperators"] = [{"numRowsDroppedByWatermark": rows} for rows in self.dropped]
        return json.dumps({**found, "sources": [{"startOffset": None, "endOffset": offsets}]})


def _job(path: Path, start: int) -> SparkJob:
    folder = RunFolder.create(path)
    folder.journal.append(DriverReady(start=start))
    return replace(JOB, folder=str(path), start=start)


def _committed(job: SparkJob, batch: int, mark: int) -> None:
    """Batch ``batch`` as Spark's checkpoint has it once it is committed."""
    for name, lines in (
        ("offsets", ["v1", json.dumps({"batchWatermarkMs": mark}), json.dumps({"in": {"0": 10 * (batch + 1)}})]),
        ("commits", ["v1", "{}"]),
    ):
        path = job.checkpoint() / name / str(batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))


def test_each_batch_that_ran_has_a_line_and_an_idle_trigger_has_none(tmp_path: Path) -> None:
    job = _job(tmp_path, 1)
    log = BatchLog(job)
    first, second, idle = Report(0), Report(1, rows=0, dropped=(1, 4)), Report(2, ran=False)
    log.update([first])
    log.update([first, second, idle])
    log.update([second, idle])
    assert read_batches(job.run.batches) == (
        Batch(0, 1, {"0": 10}, 1357034400000, 2, "2026-01-01T00:00:01.500+00:00"),
        Batch(1, 1, {"0": 20}, 1357034400000, 5, "2026-01-01T00:00:01.500+00:00"),
    )


def test_what_a_start_committed_before_it_died_is_written_down_by_the_next(tmp_path: Path) -> None:
    job = _job(tmp_path, 1)
    BatchLog(job).update([Report(0)])
    for batch in range(3):
        _committed(job, batch, 1000 + batch)
    again = BatchLog(_job(tmp_path, 2))
    again.update([Report(3)])
    found = read_batches(job.run.batches)
    assert [(batch.number, batch.start, batch.watermark_ms, batch.dropped) for batch in found] == [
        (0, 1, 1357034400000, 2),
        (1, 1, 1001, None),
        (2, 1, 1002, None),
        (3, 2, 1357034400000, 2),
    ]


def test_a_batch_that_was_reported_is_not_written_again(tmp_path: Path) -> None:
    job = _job(tmp_path, 1)
    BatchLog(job).update([Report(0), Report(1)])
    for batch in range(2):
        _committed(job, batch, 0)
    BatchLog(_job(tmp_path, 2))
    assert [batch.dropped for batch in read_batches(job.run.batches)] == [2, 2]


def test_a_checkpoint_that_does_not_say_its_watermark_has_none(tmp_path: Path) -> None:
    job = _job(tmp_path, 1)
    _committed(job, 0, 7)
    assert checkpoints.watermark(job.checkpoint(), 0) == 7
    assert checkpoints.watermark(job.checkpoint(), 1) is None
    (job.checkpoint() / "offsets" / "0").write_text("v1\nrubbish\n{}")
    assert checkpoints.watermark(job.checkpoint(), 0) is None
