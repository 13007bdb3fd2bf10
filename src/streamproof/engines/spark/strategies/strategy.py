"""What a commit strategy is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from streamproof.engines.spark.job import SparkJob
from streamproof.jobs.failpoint import Failpoint, Watch
from streamproof.jobs.profile import Trait
from streamproof.verdict.guarantee import Guarantee, Promise

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


class Strategy(Protocol):
    """How a streaming job commits its output and its progress. Subclass it for the common answers."""

    name: str
    summary: str
    sink: str
    """The kind of output, by the name of its sink."""
    guarantee: Guarantee
    failpoints: tuple[Failpoint, ...]
    atomic: bool = False
    """Whether a batch becomes visible as a whole. A reader may still see part of it while the commits are carried out."""
    ordered: bool = False
    """Whether a key's records leave in the order in which they were read. Only if a failed attempt's output is taken back: see
    ``streamproof.verdict.checks.order``."""
    monotonic: bool = False
    """Whether its output keeps versions, and a record that one of them shows is in each later one."""
    relies_on: frozenset[Trait] = frozenset()
    """What else its protocol relies on: see :attr:`traits`."""
    settings: Mapping[str, str] = {}
    """What it asks of the Spark session."""
    takes_results: bool = False
    """Whether it can deliver the results of a stateful pipeline: it takes any rows, and need not know the source offset of each."""
    recovers_in_sink: bool = False
    """Whether its sink itself finishes or undoes what an earlier start left, as the query starts. :meth:`recover` is then only called once
    the job has ended."""
    open_transaction_step: str | None = None
    """The step at which a Kafka transaction is open and undecided, for one that writes in them."""
    decided_transaction_step: str | None = None
    """The step at which a Kafka transaction is decided and not yet committed, for one that decides about them."""
    doubles: tuple[tuple[str, str], ...] = ()
    """Pairs of steps for a sweep: a crash at the second while the job recovers from a crash at the first."""

    @property
    def promises(self) -> frozenset[Promise]:
        """What a run is held to beside the guarantee."""
        kept = {Promise.ATOMIC: self.atomic, Promise.ORDERED: self.ordered, Promise.MONOTONIC: self.monotonic}
        return frozenset(promise for promise, kept_here in kept.items() if kept_here)

    @property
    def traits(self) -> frozenset[Trait]:
        """What the protocol relies on, as far as a fault can break it. Every job on Spark has a checkpoint; one that does not say where its
        source starts goes on from there."""
        resumes = type(self).starting_offsets is Strategy.starting_offsets
        return frozenset({Trait.CHECKPOINT, *([Trait.RESUMES_FROM_CHECKPOINT] if resumes else []), *self.relies_on})

    def start(self, frame: DataFrame, job: SparkJob) -> StreamingQuery:
        """Start the query that delivers ``frame`` to the job's output. Its columns are those of
        :func:`streamproof.engines.spark.kafka_to_kafka.transform`."""

    def recover(self, job: SparkJob) -> dict[str, Any]:
        """Finish or undo what an earlier start left in the sink, before the query starts. Returns what was done, for the journal.
        May be called at any time when no driver of the job runs, and repeated."""
        return {}

    def starting_offsets(self, job: SparkJob) -> str:
        """Where the source starts when the checkpoint does not say: ``earliest`` or offsets as JSON."""
        return "earliest"

    def watch(self, job: SparkJob, failpoint: str) -> Watch:
        """How the crash window of a watched step is seen. Only asked for steps at ``Site.WATCHED``."""
        raise KeyError(f"{self.name} has no watched step {failpoint!r}")


def each_batch(frame: DataFrame, job: SparkJob, deliver: Callable[[DataFrame, int], None], checkpoint: Path) -> StreamingQuery:
    """Start the query that hands each batch of ``frame``, and its number, to ``deliver``, and keeps ``checkpoint``, which is absolute."""
    return (
        frame.writeStream.foreachBatch(deliver)
        .outputMode(job.output_mode)
        .queryName(job.name)
        .option("checkpointLocation", f"file://{checkpoint}")
        .start()
    )
