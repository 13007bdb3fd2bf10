"""``at_most_once``: the batch is marked as done before it is written. At-most-once, and a negative control: it must be seen losing.

The model: the driver forces a mark for batch N to disk, then the tasks produce. Whatever comes after finds the mark and writes nothing: a
replayed batch is skipped as a whole, a task's second attempt drops its records.

    driver  1. mark N is forced to disk       failpoint ``after_mark``
    task    2. half of the task's records     failpoint ``during_output``
               are handed to Kafka
            3. the others are
    driver  4. all tasks have ended           failpoint ``after_output``
    Spark   5. ``commits/N`` is written

Crash windows:
    at 1, and until 4: the mark is there, the output is not, or in part -> LOST.
    after 4: the replay finds the mark and skips what is already there: nothing is lost.
    Nothing is ever written twice.

Checked against: Spark 4.1 (``ForeachBatchSink`` runs again for a batch without ``commits/N``; a task's attempts are counted from 0).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from streamproof.engines.spark import spark_kafka
from streamproof.engines.spark.failpoints import reach
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.strategy import Strategy, each_batch
from streamproof.jobs.failpoint import Failpoint, Site
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

_LOSES = frozenset({Anomaly.LOST})
AFTER_MARK = Failpoint("after_mark", Site.DRIVER, "marked, nothing written: the replay skips the whole batch", provokes=_LOSES)
DURING_OUTPUT = Failpoint(
    "during_output", Site.TASK, "half of a task's records are written: no second attempt writes the others", provokes=_LOSES
)
AFTER_OUTPUT = Failpoint("after_output", Site.DRIVER, "all written: the replay skips what is already there")


class AtMostOnce(Strategy):
    name = "at_most_once"
    summary = "the batch is marked as done, then written; whatever fails in between is not written again"
    sink = "kafka"
    guarantee = Guarantee.AT_MOST_ONCE
    failpoints = (AFTER_MARK, DURING_OUTPUT, AFTER_OUTPUT)

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        marks = job.checkpoint("marks")
        marks.mkdir(parents=True, exist_ok=True)

        def deliver(batch: DataFrame, number: int) -> None:
            if not mark(marks / str(number)):
                return
            reach(job.run, AFTER_MARK.name, number)
            once = batch.select("key", "value").mapInArrow(_first_attempt_only(job, number), "key binary, value binary")
            spark_kafka.write(once, job, number)
            reach(job.run, AFTER_OUTPUT.name, number)

        return each_batch(frame, job, deliver, job.checkpoint())


def mark(path: Path) -> bool:
    """Force the mark to disk; False when it was there before."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True


def _first_attempt_only(job: SparkJob, number: int) -> Callable[[Iterable[RecordBatch]], Iterator[RecordBatch]]:
    def passed_on(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for records in batches:
            if context.attemptNumber() > 0:
                continue
            half = records.num_rows // 2
            yield records.slice(0, half)
            reach(job.run, DURING_OUTPUT.name, number, attempt=0, partition=context.partitionId())
            yield records.slice(half)

    return passed_on
