"""What a sink owes to a stateful job whose batch it had decided before: to let Spark compute it all the same.

A replayed batch whose output is decided needs no records any more. But a stateful job's state, and the event times that move its watermark,
come about only as its rows are read; a batch of which a part was not read is refused (Spark 4.1, ``StateStoreCommitValidationFailed``), or
would leave the watermark behind. A job without state need not be computed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from streamproof.engines.spark.job import SparkJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def renew(frame: DataFrame, job: SparkJob) -> None:
    """Compute a batch in the driver's place, and leave its rows where they are."""
    if job.stateful:
        frame.write.format("noop").mode("append").save()


def read_on(records: Iterable[Any], job: SparkJob) -> None:
    """Read what is left of a task's records."""
    if job.stateful:
        for _ in records:
            continue
