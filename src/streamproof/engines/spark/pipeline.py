"""What a pipeline is: what a streaming job makes of its input, before a strategy delivers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from streamproof.engines.spark.job import SparkJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamproof.verdict.stateful.reference import ReferenceModel


class Pipeline(Protocol):
    """One pipeline. Subclass it for the common answers."""

    name: str
    summary: str
    stateful: bool = False
    """Whether it keeps state from batch to batch. Its output is results then, which are judged by computing them again."""

    output_mode: str = "append"
    """Which results a batch delivers, as Spark names it: ``append``, those that are final, or ``update``, those that it changed."""

    joins: bool = False
    """Whether its input has two streams that it joins: flights, and the weather of the airports."""

    def reference(self, options: dict[str, int], delay_ms: int) -> ReferenceModel | None:
        """What its results are computed from again, for one that keeps state; ``delay_ms`` is the declared delay."""
        return None

    def transform(self, frame: DataFrame, job: SparkJob) -> DataFrame:
        """What is delivered, from the input topic as Spark's Kafka source has it: columns ``key`` and ``value`` (binary) for the sink,
        ``source_partition`` and ``source_offset`` for the strategies."""
        raise NotImplementedError
