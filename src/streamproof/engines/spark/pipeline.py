"""What a pipeline is: what a streaming job makes of its input, before a strategy delivers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from streamproof.engines.spark.job import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RESULT_STRATEGIES = ("checkpoint", "offset_commit", "two_phase_commit", "postgres_ledger", "postgres_two_phase_commit")
"""The strategies that can deliver results: they take any rows, where others need to know the source offset of each."""


class Pipeline(Protocol):
    """One pipeline. Subclass it for the common answers."""

    name: str
    summary: str
    stateful: bool = False
    """Whether it keeps state from batch to batch. Its output is results then, which are judged by computing them again."""

    @property
    def strategies(self) -> tuple[str, ...] | None:
        """The strategies that can deliver its output; None for all."""
        return RESULT_STRATEGIES if self.stateful else None

    def transform(self, frame: DataFrame, job: Job) -> DataFrame:
        """What is delivered, from the input topic as Spark's Kafka source has it: columns ``key`` and ``value`` (binary) for the sink,
        ``source_partition`` and ``source_offset`` for the strategies."""
        raise NotImplementedError
