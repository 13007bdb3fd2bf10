"""Does a streaming query write a batch to an Iceberg table again, when the snapshot that brought it has expired?

    python iceberg_expired_snapshots.py --jar iceberg-spark-runtime-4.1_2.13-1.11.0.jar

Needs pyspark and that jar, nothing else. Exit code 1: the batch is there twice.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from pyspark import __version__
from pyspark.sql import SparkSession

TABLE, ROWS = "lake.db.events", 1000


def session(jar: str, folder: Path) -> SparkSession:
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jar)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", f"file://{folder / 'warehouse'}")
        .getOrCreate()
    )


def stream(spark: SparkSession, folder: Path) -> None:
    """Read what is in the folder, and end."""
    rows = spark.readStream.schema("id long").json(f"file://{folder / 'input'}")
    writer = rows.writeStream.format("iceberg").option("checkpointLocation", f"file://{folder / 'checkpoint'}")
    writer.trigger(availableNow=True).toTable(TABLE).awaitTermination()


def crash_before_the_commit(folder: Path) -> None:
    """What a driver leaves that dies when the table has batch 0 and the checkpoint does not have ``commits/0``."""
    for name in ("0", ".0.crc"):
        (folder / "checkpoint" / "commits" / name).unlink()


def maintain(spark: SparkSession) -> None:
    """What runs every night beside such a job."""
    spark.sql("CALL lake.system.rewrite_data_files(table => 'db.events', options => map('rewrite-all', 'true'))").collect()
    spark.sql(
        "CALL lake.system.expire_snapshots(table => 'db.events', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    ).collect()


def attempt(spark: SparkSession, folder: Path, *, maintained: bool) -> int:
    """How many rows the table has when the query was started again."""
    spark.sql(f"DROP TABLE IF EXISTS {TABLE} PURGE")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    spark.sql(f"CREATE TABLE {TABLE} (id long) USING iceberg")
    (folder / "input").mkdir(parents=True)
    (folder / "input" / "rows.json").write_text("".join(f'{{"id": {number}}}\n' for number in range(ROWS)))
    stream(spark, folder)
    crash_before_the_commit(folder)
    if maintained:
        maintain(spark)
    stream(spark, folder)
    return spark.table(TABLE).count()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jar", required=True, help="the path of iceberg-spark-runtime")
    jar = parser.parse_args().jar
    print(f"pyspark {__version__}, {Path(jar).stem}\n")
    with tempfile.TemporaryDirectory() as name:
        spark = session(jar, Path(name))
        spark.sparkContext.setLogLevel("ERROR")
        crashed = attempt(spark, Path(name) / "crashed", maintained=False)
        print(f"the driver dies before commits/0, and is started again:                   {crashed} rows, {ROWS} expected")
        maintained = attempt(spark, Path(name) / "maintained", maintained=True)
        print(f"the same, and meanwhile files are rewritten and older snapshots expire:   {maintained} rows, {ROWS} expected")
        spark.stop()
    return int(maintained != ROWS)


if __name__ == "__main__":
    sys.exit(main())
