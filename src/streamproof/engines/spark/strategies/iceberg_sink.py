"""``iceberg_sink``: Iceberg's own streaming sink, its catalog in PostgreSQL. Exactly-once, as long as the checkpoint is the same one.

The model: tasks write files under names never used before; the driver writes manifests and a metadata file that name them, and commits by
replacing the metadata file's name in the catalog, in one statement. The snapshot holds the query's id and the epoch, the batch's number.
An epoch that is not above the highest of the query's in the table's snapshots is not committed again.

    1. offsets/N is written             the batch's input is fixed
    2. tasks write files                step ``after_files``, watched: files are there, no snapshot names them
    3. the catalog names the snapshot   step ``after_snapshot``, watched: the table has the batch, commits/N is missing
    4. commits/N is written

Crash windows:
    between 2 and 3: the files belong to no snapshot. The replay writes others; nobody reads the first.
    during 3, when the catalog's answer is lost: the writer reads the table again and looks whether its snapshot is there.
    between 3 and 4: the replay writes its files, finds its epoch in the snapshots, and commits nothing: the files stay without a name.

What it rests on: the query's id, which is the checkpoint's, and the snapshots that hold the epoch. With a new checkpoint, or when that
snapshot has expired, the table knows nothing of the batch -> DUPLICATED.

Checked against: Iceberg 1.11 on Spark 4.1 (``SparkWrite.BaseStreamingWrite``, ``getLastCommittedEpochId``: the ancestors of the current
snapshot, newest first).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.strategy import Strategy
from streamproof.jobs.failpoint import Failpoint, Site, Watch
from streamproof.jobs.profile import Trait
from streamproof.verdict.guarantee import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

AFTER_FILES = Failpoint(
    "after_files", Site.WATCHED, "files are written, no snapshot of the table names them: nobody reads them, the replay writes others"
)
AFTER_SNAPSHOT = Failpoint(
    "after_snapshot", Site.WATCHED, "the table has the batch, Spark has not committed it: the replay finds its epoch and commits nothing"
)
SETTINGS: Mapping[str, str] = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "jdbc",
    "spark.sql.catalog.lake.jdbc.schema-version": "V1",
}


class IcebergStrategy(Strategy):
    """Delivers to an Iceberg table in the run's folder for files, whose catalog is in the testbed's PostgreSQL."""

    sink = "iceberg"
    settings = SETTINGS
    monotonic = True
    relies_on = frozenset({Trait.ICEBERG_TABLE})


class IcebergSink(IcebergStrategy):
    name = "iceberg_sink"
    summary = "Iceberg's own sink: each snapshot remembers the query and the epoch"
    guarantee = Guarantee.EXACTLY_ONCE
    relies_on = frozenset({Trait.ICEBERG_TABLE, Trait.SKIPS_COMPLETE_OUTPUT, Trait.KNOWS_THE_QUERY})
    failpoints = (AFTER_FILES, AFTER_SNAPSHOT)

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        table = table_of(frame.sparkSession, job)
        return (
            frame.select("key", "value")
            .writeStream.format("iceberg")
            .queryName(job.name)
            .option("checkpointLocation", f"file://{job.checkpoint()}")
            .toTable(table)
        )

    def watch(self, job: SparkJob, failpoint: str) -> Watch:
        from streamproof.engines.spark import watches

        if failpoint == AFTER_SNAPSHOT.name:
            return watches.LoggedBeforeCommit(job.checkpoint(), committed(job))
        return watches.OutputBeforeCommit(job.checkpoint(), watches.complete_files(job.files, "**/*.parquet"), committed(job))


def committed(job: SparkJob) -> Callable[[int], bool]:
    """Whether a batch is in the table."""
    from streamproof.sinks.iceberg import metadata
    from streamproof.sinks.iceberg.table import NAMESPACE, TABLE, catalog

    known = catalog(job, job.postgres)

    def found(batch: int) -> bool:
        current = known.metadata(NAMESPACE, TABLE)
        return current is not None and any(snapshot.epoch == batch for snapshot in metadata.snapshots(current))

    return found


def table_of(spark: SparkSession, job: SparkJob) -> str:
    """Tell the session where the catalog is, and make the table. Returns its name."""
    from streamproof.sinks.iceberg.catalog import NAME
    from streamproof.sinks.iceberg.table import NAMESPACE, TABLE
    from streamproof.sinks.own_schema import schema_of
    from streamproof.testbed.postgres import Server

    server = Server.of(job.postgres)
    # The password is in a file that only its owner reads, and PostgreSQL's driver asks this property for its name.
    spark._jvm.java.lang.System.setProperty("org.postgresql.pgpassfile", str(server.passfile))  # type: ignore[union-attr]
    uri = server.jdbc(schema_of(job))
    spark.conf.set(f"spark.sql.catalog.{NAME}.uri", uri)
    spark.conf.set(f"spark.sql.catalog.{NAME}.warehouse", f"file://{job.files}")
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAME}.{NAMESPACE}")
    table = f"{NAME}.{NAMESPACE}.{TABLE}"
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} (key BINARY, value BINARY) USING iceberg")
    return table
