"""A streaming job of ours on Spark: a pipeline and the strategy that delivers what it makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from streamproof.jobs.job import Job


class OnLostDecision(StrEnum):
    """What a job does about a transaction that it decided to commit and that the broker has aborted: STOP, at each start anew, until
    somebody has looked, or GO_ON without its records, and say so in the journal (``decision_lost``)."""

    STOP = "stop"
    GO_ON = "go_on"


@dataclass(frozen=True, kw_only=True)
class SparkJob(Job):
    """Spark's own source and sink take one address of Kafka for both roles: :func:`streamproof.engines.spark.spark_kafka.address`.

    ``name`` is the query's name. ``batch_records`` bounds a micro-batch (``maxOffsetsPerTrigger``). ``on_lost_decision`` is what a
    two-phase commit does about a transaction that was decided and is aborted. ``fail_on_data_loss`` is whether the source ends the query
    when records are gone that it has not read (``failOnDataLoss``). ``spark`` are Spark settings, ``options`` are the pipeline's
    own. ``stateful`` is whether the pipeline keeps state from batch to batch, ``output_mode`` which of its results a batch delivers.
    """

    pipeline: str
    strategy: str
    master: str
    spark: dict[str, str]
    stateful: bool = False
    output_mode: str = "append"
    options: dict[str, int] = field(default_factory=dict)
    on_lost_decision: OnLostDecision = OnLostDecision.STOP
    fail_on_data_loss: bool = True
