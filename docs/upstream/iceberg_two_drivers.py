"""Does a streaming query write a batch to an Iceberg table twice, when a driver that was taken for dead commits it after its successor?

    python iceberg_two_drivers.py --jar iceberg-spark-runtime-4.1_2.13-1.11.0.jar

The first driver is stopped (SIGSTOP) as it commits, a second one runs the same query from the same checkpoint, and the first one wakes
(SIGCONT). Needs pyspark and that jar, nothing else. Exit code 1: the batch is there twice.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark import __version__
from pyspark.sql import SparkSession

TABLE, ROWS = "lake.db.events", 1000
ATTEMPTS, LONGEST_S, WATCH_S = 10, 120.0, 0.0005
PROPERTIES = 20_000


def session(jar: str, folder: Path) -> SparkSession:
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jar)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", f"file://{folder / 'warehouse'}")
        .getOrCreate()
    )


def stream(jar: str, folder: Path) -> None:
    """Read what is in the folder, and end: one batch."""
    rows = session(jar, folder).readStream.schema("id long").json(f"file://{folder / 'input'}")
    writer = rows.writeStream.format("iceberg").option("checkpointLocation", f"file://{folder / 'checkpoint'}")
    writer.trigger(availableNow=True).toTable(TABLE).awaitTermination()


def prepare(jar: str, folder: Path) -> None:
    """A table with so many properties that it takes a moment to write its metadata: then there is time to stop who does."""
    (folder / "input").mkdir(parents=True)
    (folder / "input" / "rows.json").write_text("".join(f'{{"id": {number}}}\n' for number in range(ROWS)))
    spark = session(jar, folder)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    many = ", ".join(f"'property-{number}' = '{'x' * 100}'" for number in range(PROPERTIES))
    spark.sql(f"CREATE TABLE {TABLE} (id long) USING iceberg TBLPROPERTIES ({many})")
    spark.stop()


def driver(jar: str, folder: Path, log: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, "--jar", jar, "--stream", str(folder)]
    with (folder / log).open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)


def stopped_in_its_commit(first: subprocess.Popen[bytes], folder: Path) -> bool:
    """Stop the driver when the snapshot's manifest list is there. Whether the metadata that name it were not."""
    metadata, until = folder / "warehouse" / "db" / "events" / "metadata", time.monotonic() + LONGEST_S
    while not any(metadata.glob("snap-*.avro")):
        if time.monotonic() > until or first.poll() is not None:
            raise RuntimeError(f"the first driver did not commit, see {folder}")
        time.sleep(WATCH_S)
    os.killpg(first.pid, signal.SIGSTOP)
    return not (metadata / "v2.metadata.json").exists()


def attempt(jar: str, folder: Path) -> int | None:
    """How many rows the table has; None when the first driver was stopped too late."""
    prepare(jar, folder)
    first = driver(jar, folder, "first.log")
    try:
        if not stopped_in_its_commit(first, folder):
            return None
        driver(jar, folder, "second.log").wait(LONGEST_S)
        os.killpg(first.pid, signal.SIGCONT)
        first.wait(LONGEST_S)
    finally:
        if first.poll() is None:
            os.killpg(first.pid, signal.SIGKILL)
            first.wait()
    spark = session(jar, folder)
    try:
        return spark.table(TABLE).count()
    finally:
        spark.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jar", required=True, help="the path of iceberg-spark-runtime")
    parser.add_argument("--stream", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.stream is not None:
        stream(asked.jar, asked.stream)
        return 0
    print(f"pyspark {__version__}, {Path(asked.jar).stem}\n")
    with tempfile.TemporaryDirectory() as name:
        for number in range(ATTEMPTS):
            rows = attempt(asked.jar, Path(name) / str(number))
            if rows is not None:
                print(f"a driver that stood still commits the batch after its successor:   {rows} rows, {ROWS} expected")
                return int(rows != ROWS)
    print(f"not one of {ATTEMPTS} drivers was stopped in its commit", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
