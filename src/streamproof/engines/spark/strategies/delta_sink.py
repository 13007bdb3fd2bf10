"""``delta_sink``: Delta's own streaming sink. Exactly-once, as long as the checkpoint is the same one.

The model: tasks write files under names never used before; the driver commits a version of the table that names them, and with it writes
down the query's id and the batch (a ``txn`` action); then ``commits/N``. A batch that the table knows is not written again.

    1. offsets/N is written             the batch's input is fixed
    2. tasks write files                step ``after_files``, watched: files are there, no version names them
    3. version V is committed           step ``after_version``, watched: the table has the batch, commits/N is missing
    4. commits/N is written

Crash windows:
    between 2 and 3: the files belong to no version. The replay writes others; nobody reads the first.
    between 3 and 4: the replay finds its query's id with this batch, and writes nothing.

What it rests on: the query's id, which is the checkpoint's. With a new checkpoint the table knows nothing of the query -> DUPLICATED.

Checked against: Delta 4.4 on Spark 4.1 (``DeltaSink.addBatch``: ``txn.txnVersion(queryId) >= batchId`` is skipped).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.strategy import Strategy
from streamproof.jobs.failpoint import Failpoint, Site, Watch
from streamproof.jobs.profile import Trait
from streamproof.verdict.guarantee import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

AFTER_FILES = Failpoint(
    "after_files", Site.WATCHED, "files are written, no version of the table names them: nobody reads them, the replay writes others"
)
AFTER_VERSION = Failpoint(
    "after_version", Site.WATCHED, "the table has the batch, Spark has not committed it: the replay finds it there and writes nothing"
)
SETTINGS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A table of a run has a handful of files: to read its state with Delta's 50 tasks takes longer than a batch.
    "spark.databricks.delta.snapshotPartitions": "1",
}


class DeltaStrategy(Strategy):
    """Delivers to the Delta table in the run's folder for files."""

    sink = "delta"
    settings = SETTINGS
    monotonic = True
    relies_on = frozenset({Trait.DELTA_TABLE})

    def watch(self, job: SparkJob, failpoint: str) -> Watch:
        """For a strategy whose versions name the query, or the job, and the batch."""
        from streamproof.engines.spark import watches
        from streamproof.sinks.delta import log

        def committed(batch: int) -> bool:
            return any(batch in version.applications.values() for version in log.versions(job.files))

        if failpoint == AFTER_VERSION.name:
            return watches.LoggedBeforeCommit(job.checkpoint(), committed)
        return watches.OutputBeforeCommit(job.checkpoint(), watches.complete_files(job.files), committed)


class DeltaSink(DeltaStrategy):
    name = "delta_sink"
    summary = "Delta's own sink: each version remembers the query and the batch"
    guarantee = Guarantee.EXACTLY_ONCE
    relies_on = frozenset({Trait.DELTA_TABLE, Trait.SKIPS_COMPLETE_OUTPUT, Trait.KNOWS_THE_QUERY})
    failpoints = (AFTER_FILES, AFTER_VERSION)

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        return (
            frame.select("key", "value")
            .writeStream.format("delta")
            .queryName(job.name)
            .option("checkpointLocation", f"file://{job.checkpoint()}")
            .start(f"file://{job.files}")
        )
