"""The Spark task that this code runs in, as a commit protocol has to know it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """``attempt`` counts from 0 in each attempt of the stage; ``unique`` differs between all attempts of all tasks."""

    batch: int
    partition: int
    attempt: int
    unique: int


def current(batch: int) -> Task:
    """The task that calls, at work on that micro-batch."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("this is not a task of Spark")
    return Task(batch, context.partitionId(), context.attemptNumber(), context.taskAttemptId())
