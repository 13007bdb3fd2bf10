"""Does a partition that PySpark hands to ``foreachPartition`` end early, as if that were all of it, when its task is killed?

    python pyspark_truncated_partition.py

Two tasks: one fails, so that Spark kills the other, which stands at its first row meanwhile; then it counts its rows and says at their end
how many they were. Needs pyspark, nothing else. Exit code 1: it came to an end without an error, and not all of its rows were there.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark import TaskContext, __version__
from pyspark.sql import Row, SparkSession

ROWS, PARTS = 400_000, 2
TOLD_S, SETTLES_S = 0.7, 5.0  # a worker that goes on is ended 2 s after its task was killed


def counted(folder: Path, fails: bool) -> dict[int, int]:
    """How many rows each task had seen when its partition was at its end, by the partition; the tasks that came to an end only."""

    def count(rows: Iterator[Row]) -> None:
        part = TaskContext.get().partitionId()  # type: ignore[union-attr]
        next(rows)
        if fails and part == 0:
            failed.touch()
            raise RuntimeError("this task fails")
        while fails and not failed.exists():
            time.sleep(0.01)
        time.sleep(TOLD_S)
        seen = 1 + sum(1 for _ in rows)
        (folder / str(part)).write_text(str(seen))  # where a job would commit: after the last row

    spark, failed = SparkSession.builder.getOrCreate(), folder / "failed"
    try:
        spark.range(0, ROWS, 1, PARTS).repartition(PARTS, "id").selectExpr("id", "repeat(id, 60) AS text").foreachPartition(count)
    except Py4JJavaError as error:  # as it should
        print(f"the job failed ({type(error).__name__})", file=sys.stderr)
    time.sleep(SETTLES_S)
    return {int(file.name): int(file.read_text()) for file in folder.iterdir() if file != failed}


def main() -> int:
    session = SparkSession.builder.master(f"local[{PARTS}]").config("spark.ui.enabled", "false")
    spark = session.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as cut:
        expected, found = counted(Path(whole), fails=False), counted(Path(cut), fails=True)
    spark.stop()
    print(f"pyspark {__version__}\n")
    broken = {part: rows for part, rows in found.items() if rows != expected[part]}
    for part, rows in broken.items():
        print(f"the killed task of partition {part} came to its end without an error:   {rows} rows, {expected[part]} expected")
    if not broken:
        print("no task came to its end without all of its rows")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
