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


def current() -> Task:
    """The task of a streaming query's micro-batch. Spark passes the batch's number to tasks as a local property."""
    from pyspark import TaskContext

    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if context is None or batch is None:
        raise RuntimeError("this is not a task of a streaming query's micro-batch")
    return Task(int(batch), context.partitionId(), context.attemptNumber(), context.taskAttemptId())
