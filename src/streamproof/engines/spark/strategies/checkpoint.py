"""``checkpoint``: Spark's own Kafka sink with a checkpoint. At-least-once.

The model: Spark writes the batch's input range to ``offsets/N``, runs the batch, and writes ``commits/N``. The sink is a plain Kafka
producer in each task; it neither knows batches nor undoes anything.

    1. offsets/N is written        the batch's input is fixed, a replay reads the same records
    2. tasks produce to Kafka      visible at once, record by record
                                   step ``after_output``, watched: part of the batch is there, commits/N is not
    3. commits/N is written        the batch is done

Crash windows:
    between 1 and 2: nothing was written; the replay writes it once.
    during 2, in a task: its retry writes the partition again -> DUPLICATED up to the crash.
    between 2 and 3, in the driver: the next start replays the whole batch -> DUPLICATED.
    No window loses: an offset is only passed over once its batch's output was flushed.

Checked against: Spark 4.1 (``MicroBatchExecution``, ``KafkaStreamWriter``: the commit message is empty and ``commit`` does nothing)
and the Structured Streaming + Kafka guide ("Kafka only supports at least once write semantics").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproof.engines.spark import spark_kafka
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.strategy import Strategy
from streamproof.jobs.failpoint import Failpoint, Site, Watch
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

AFTER_OUTPUT = Failpoint(
    "after_output",
    Site.WATCHED,
    "some of the batch is visible, Spark has not committed it: the next start writes all of it again",
    provokes=frozenset({Anomaly.DUPLICATED}),
)


class Checkpoint(Strategy):
    name = "checkpoint"
    summary = "Spark's own Kafka sink and checkpoint: what most jobs run"
    sink = "kafka"
    takes_results = True
    guarantee = Guarantee.AT_LEAST_ONCE
    failpoints = (AFTER_OUTPUT,)

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        return (
            frame.select("key", "value")
            .writeStream.format("kafka")
            .outputMode(job.output_mode)
            .queryName(job.name)
            .options(**spark_kafka.address(job))
            .option("topic", job.output_topic)
            .option("checkpointLocation", str(job.checkpoint()))
            .start()
        )

    def watch(self, job: SparkJob, failpoint: str) -> Watch:
        from streamproof.engines.spark import watches

        size = watches.topic_size(job.kafka, job.output_topic)
        return watches.OutputBeforeCommit(job.checkpoint(), size, lambda batch: (job.checkpoint() / "commits" / str(batch)).exists())
