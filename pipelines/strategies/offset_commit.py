"""``offset_commit``: output first, then the consumer group's offsets. At-least-once.

The model: what every hand-written consumer does, on Spark. ``foreachBatch`` writes the batch to Kafka, then commits the batch's end
offsets for a consumer group. The group's offsets, not Spark's checkpoint, say where the next start reads from: each start has a
checkpoint of its own.

    1. the batch is written to Kafka          visible at once
    2. failpoint ``after_output``
    3. the group's offsets are committed      the batch is done
    4. failpoint ``after_offset_commit``

Crash windows:
    during 1: part of the batch is visible, no offset was committed -> the next start writes it again -> DUPLICATED.
    at 2: all of the batch is visible, no offset was committed -> DUPLICATED, the whole batch.
    at 4: nothing; the next start reads on from the committed offsets.
    Committing *before* the output would turn each of these into LOST.

Checked against: Spark 4.1 (``ForeachBatchSink`` has no commit coordinator; ``offsets/N`` is on disk before the batch runs).
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from delivery.anomaly import Anomaly
from delivery.guarantee import Guarantee
from pipelines import checkpoints, spark_kafka
from pipelines.failpoints import Failpoint, reach
from pipelines.job import Job
from pipelines.sink import Sink
from pipelines.strategies.strategy import Strategy

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

REQUEST_S = 30.0
POLL_S = 0.05
AFTER_OUTPUT = Failpoint(
    "after_output",
    "driver",
    "the batch is visible, its offsets are not committed: the next start writes it again",
    provokes=frozenset({Anomaly.DUPLICATED}),
)
AFTER_OFFSET_COMMIT = Failpoint("after_offset_commit", "driver", "the batch is done; nothing is lost or doubled")


class OffsetCommit(Strategy):
    name = "offset_commit"
    summary = "foreachBatch output, then the consumer group's offsets; the next start reads from them"
    sink = Sink.KAFKA
    guarantee = Guarantee.AT_LEAST_ONCE
    failpoints = (AFTER_OUTPUT, AFTER_OFFSET_COMMIT)

    def starting_offsets(self, job: Job) -> str:
        """The group's committed offset of each partition, the earliest where there is none."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        consumer, deadline = _group(job), time.monotonic() + REQUEST_S
        try:
            known = consumer.list_topics(job.input_topic, timeout=REQUEST_S).topics[job.input_topic].partitions
            while True:
                try:
                    committed = consumer.committed([TopicPartition(job.input_topic, number) for number in known], timeout=REQUEST_S)
                    break
                except KafkaException as error:  # a new broker elects and loads the group's coordinator when it is first asked for
                    moving = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
                    if error.args[0].code() not in moving or time.monotonic() > deadline:
                        raise
                    time.sleep(POLL_S)
        finally:
            consumer.close()
        return json.dumps({job.input_topic: {str(at.partition): at.offset if at.offset >= 0 else checkpoints.EARLIEST for at in committed}})

    def start(self, frame: DataFrame, job: Job) -> StreamingQuery:
        checkpoint = job.checkpoint(f"start-{job.start}")
        group = _group(job)

        def deliver(batch: DataFrame, number: int) -> None:
            spark_kafka.write(batch, job, number)
            reach(job.run, AFTER_OUTPUT.name, number)
            _commit(group, json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[-1]))
            reach(job.run, AFTER_OFFSET_COMMIT.name, number)

        return frame.writeStream.foreachBatch(deliver).queryName(job.query).option("checkpointLocation", f"file://{checkpoint}").start()


def _group(job: Job) -> Consumer:
    from confluent_kafka import Consumer

    return Consumer({"bootstrap.servers": job.bootstrap, "group.id": job.query, "enable.auto.commit": False, "log_level": 2})


def _commit(group: Consumer, until: dict[str, dict[str, int]]) -> None:
    from confluent_kafka import KafkaException, TopicPartition

    offsets = [TopicPartition(topic, int(number), at) for topic, ends in until.items() for number, at in ends.items()]
    for answer in group.commit(offsets=offsets, asynchronous=False) or []:
        if answer.error is not None:
            raise KafkaException(answer.error)
