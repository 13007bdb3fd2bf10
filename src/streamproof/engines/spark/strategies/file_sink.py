"""``file_sink``: Spark's own Parquet sink, whose log ``_spark_metadata`` names the files that count. Exactly-once for who reads the log.

The model: tasks write files under names never used before; the driver writes the batch's file list to ``_spark_metadata/N``; then
``commits/N``. Two readers are checked: ``file_sink`` reads the files that the log names, as Spark does; ``file_sink_listed`` reads every
complete file in the folder, as most other tools do.

    1. offsets/N is written               the batch's input is fixed
    2. tasks write files                  step ``after_files``, watched: files are there, the log does not name them
    3. ``_spark_metadata/N`` is written   step ``after_log``, watched: the log names them, commits/N is missing
    4. commits/N is written

Crash windows:
    between 2 and 3: the replay writes files anew. The log names the new ones only; a listing reader sees both -> DUPLICATED.
    between 3 and 4: the replay finds the batch in the log and writes nothing.

Checked against: Spark 4.1 (``FileStreamSink.addBatch`` skips a batch that its log holds; ``ManifestFileCommitProtocol`` deletes the files
of a task that fails, and nothing after a SIGKILL).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.strategy import Strategy
from streamproof.jobs.failpoint import Failpoint, Site, Watch
from streamproof.jobs.profile import Trait
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

AFTER_FILES = "after_files"
AFTER_LOG = Failpoint("after_log", Site.WATCHED, "the log names the batch, Spark has not committed it: the replay writes nothing")


class FileSink(Strategy):
    name = "file_sink"
    summary = "Spark's own Parquet sink, read by its log _spark_metadata"
    sink = "files"
    guarantee = Guarantee.EXACTLY_ONCE
    relies_on = frozenset({Trait.SKIPS_COMPLETE_OUTPUT})
    failpoints = (
        Failpoint(
            AFTER_FILES, Site.WATCHED, "files are written, the log does not name them: the replay writes others, the log names those"
        ),
        AFTER_LOG,
    )

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        return (
            frame.select("key", "value")
            .writeStream.format("parquet")
            .queryName(job.name)
            .option("path", f"file://{job.files}")
            .option("checkpointLocation", f"file://{job.checkpoint()}")
            .start()
        )

    def watch(self, job: SparkJob, failpoint: str) -> Watch:
        from streamproof.engines.spark import watches

        def logged(batch: int) -> bool:
            log = job.files / "_spark_metadata"
            return (log / str(batch)).exists() or (log / f"{batch}.compact").exists()

        if failpoint == AFTER_LOG.name:
            return watches.LoggedBeforeCommit(job.checkpoint(), logged)
        return watches.OutputBeforeCommit(job.checkpoint(), watches.complete_files(job.files), logged)


class FileSinkListed(FileSink):
    name = "file_sink_listed"
    summary = "the same sink, read by listing its folder: what tools see that do not know _spark_metadata"
    guarantee = Guarantee.AT_LEAST_ONCE
    sink = "listed_files"
    failpoints = (
        Failpoint(
            AFTER_FILES,
            Site.WATCHED,
            "files are written that the log will never name: a reader that lists the folder reads them and their replay",
            provokes=frozenset({Anomaly.DUPLICATED}),
        ),
        AFTER_LOG,
    )
