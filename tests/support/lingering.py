"""A strategy one of whose tasks outlives everything: the Python worker of a dead executor writes when the run's last driver has ended.

The first start holds a task of one micro-batch. When its driver is killed the executor ends, and tells its Python workers to; this one does
not listen. It waits until the driver of the second start has ended, and as long again as a late request may take, and then delivers the
record that it had in its hands. The second start has delivered that micro-batch long ago.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamproof.engines.spark import spark_kafka
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.offset_commit import OffsetCommit, _commit, _group

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

HELD = 6
"""How many micro-batches the first start has committed when a task of the next one is held."""
LATE_S = 2.0
PATIENCE_S = 120.0


class Lingering(OffsetCommit):
    name = "lingering"
    summary = "offset_commit, with a task that outlives its executor"
    failpoints = ()

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        checkpoint = job.checkpoint(f"start-{job.start}")
        group = _group(job)
        journal, topic, bootstrap = str(job.run.journal.path), job.output_topic, job.task_bootstrap

        def linger(rows: Iterator[Any]) -> None:
            from tests.support.lingering import deliver_late

            for row in rows:
                deliver_late(Path(journal), bootstrap, topic, bytes(row.key), bytes(row.value))

        def deliver(batch: DataFrame, number: int) -> None:
            offsets = json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[-1])
            if job.start == 1 and number == HELD:
                batch.select("key", "value").limit(1).foreachPartition(linger)
            spark_kafka.write(batch, job, number)
            _commit(group, offsets)

        return frame.writeStream.foreachBatch(deliver).queryName(job.name).option("checkpointLocation", f"file://{checkpoint}").start()


def deliver_late(journal: Path, bootstrap: str, topic: str, key: bytes, value: bytes) -> None:
    from confluent_kafka import Producer

    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    patience = time.monotonic() + PATIENCE_S
    while not _has_ended(journal, 2) and time.monotonic() < patience:
        time.sleep(0.05)
    time.sleep(LATE_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value, key)
    producer.flush(10)


def _has_ended(journal: Path, start: int) -> bool:
    events = (json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}"))
    return any(event.get("event") == "driver_exited" and event.get("start") == start for event in events)
