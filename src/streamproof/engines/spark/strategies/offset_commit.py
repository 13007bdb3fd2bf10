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
from typing import TYPE_CHECKING

from streamproof.engines.spark import checkpoints, spark_kafka
from streamproof.engines.spark.failpoints import reach
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.strategies.strategy import Strategy, each_batch
from streamproof.jobs.failpoint import Failpoint
from streamproof.jobs.profile import Trait
from streamproof.kafka.asking import asked
from streamproof.kafka.servers import librdkafka
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

REQUEST_S = 30.0
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
    sink = "kafka"
    takes_results = True
    relies_on = frozenset({Trait.GROUP_OFFSETS})
    guarantee = Guarantee.AT_LEAST_ONCE
    failpoints = (AFTER_OUTPUT, AFTER_OFFSET_COMMIT)

    def starting_offsets(self, job: SparkJob) -> str:
        """The group's committed offset of each partition, the earliest where there is none."""
        consumer = _group(job)
        try:  # a new broker elects and loads the group's coordinator when it is first asked for
            committed = asked(lambda: _committed(consumer, job.input_topic), REQUEST_S)
        finally:
            consumer.close()
        offsets = {str(number): offset if offset >= 0 else checkpoints.EARLIEST for number, offset in committed.items()}
        return json.dumps({job.input_topic: offsets})

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        checkpoint = job.checkpoint(f"start-{job.start}")
        group = _group(job)

        def deliver(batch: DataFrame, number: int) -> None:
            spark_kafka.write(batch, job, number)
            reach(job.run, AFTER_OUTPUT.name, number)
            ends = json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[-1])
            asked(lambda: _commit(group, ends), REQUEST_S)  # the same offsets twice are as good as once
            reach(job.run, AFTER_OFFSET_COMMIT.name, number)

        return each_batch(frame, job, deliver, checkpoint)


def _group(job: SparkJob) -> Consumer:
    from confluent_kafka import Consumer

    return Consumer({**librdkafka(job.kafka), "group.id": job.name, "enable.auto.commit": False, "log_level": 2})


def _committed(consumer: Consumer, topic: str) -> dict[int, int]:
    """The group's committed offset of each partition of a topic, negative where there is none."""
    from confluent_kafka import KafkaException, TopicPartition

    listed = consumer.list_topics(topic, timeout=REQUEST_S).topics[topic]
    if listed.error is not None:
        raise KafkaException(listed.error)
    committed = consumer.committed([TopicPartition(topic, number) for number in listed.partitions], timeout=REQUEST_S)
    for at in committed:
        if at.error is not None:
            raise KafkaException(at.error)
    return {at.partition: at.offset for at in committed}


def _commit(group: Consumer, until: dict[str, dict[str, int]]) -> None:
    from confluent_kafka import KafkaException, TopicPartition

    offsets = [TopicPartition(topic, int(number), at) for topic, ends in until.items() for number, at in ends.items()]
    for answer in group.commit(offsets=offsets, asynchronous=False) or []:
        if answer.error is not None:
            raise KafkaException(answer.error)
