"""A strategy as somebody's own job would be, which breaks overnight: a change turns the two halves of its commit round.

As long as there is no file ``commit-first`` in the state folder it writes its output, then commits its offsets: at-least-once, as it
promises. With that file it commits first, and a crash between the two loses a batch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from streamproof import settings
from streamproof.engines.spark import spark_kafka
from streamproof.engines.spark.failpoints import reach
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.offset_commit import OffsetCommit, _commit, _group
from streamproof.jobs.failpoint import Failpoint, Site
from streamproof.verdict.anomaly import Anomaly

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

BETWEEN = Failpoint("between", Site.DRIVER, "between output and offsets", allows=frozenset({Anomaly.DUPLICATED}))


def change() -> Path:
    """The file that stands for the change of the job."""
    return settings.home() / "commit-first"


class Regressing(OffsetCommit):
    name = "regressing"
    summary = "offset_commit, until somebody turns its steps round"
    failpoints = (BETWEEN,)

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        checkpoint = job.checkpoint(f"start-{job.start}")
        group = _group(job)

        def deliver(batch: DataFrame, number: int) -> None:
            offsets = json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[-1])
            halves = [lambda: spark_kafka.write(batch, job, number), lambda: _commit(group, offsets)]
            first, second = reversed(halves) if change().exists() else halves
            first()
            reach(job.run, BETWEEN.name, number)
            second()

        return frame.writeStream.foreachBatch(deliver).queryName(job.name).option("checkpointLocation", f"file://{checkpoint}").start()
