"""What a commit strategy is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from streamproof.engines.spark.failpoints import Failpoint, Watch
from streamproof.engines.spark.job import Job
from streamproof.sinks.sink import Sink
from streamproof.verdict.guarantee import Guarantee, Promise

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


class Strategy(Protocol):
    """How a streaming job commits its output and its progress. Subclass it for the common answers."""

    name: str
    summary: str
    sink: Sink
    guarantee: Guarantee
    failpoints: tuple[Failpoint, ...]
    atomic: bool = False
    """Whether a batch becomes visible as a whole. A reader may still see part of it while the commits are carried out."""
    ordered: bool = False
    """Whether a key's records leave in the order in which they were read. Only if a failed attempt's output is taken back: see
    ``streamproof.verdict.checks.order``."""
    doubles: tuple[tuple[str, str], ...] = ()
    """Pairs of steps for a sweep: a crash at the second while the job recovers from a crash at the first."""

    @property
    def promises(self) -> frozenset[Promise]:
        """What a run is held to beside the guarantee."""
        kept = {Promise.ATOMIC: self.atomic, Promise.ORDERED: self.ordered}
        return frozenset(promise for promise, given in kept.items() if given)

    def start(self, frame: DataFrame, job: Job) -> StreamingQuery:
        """Start the query that delivers ``frame`` to the job's output. Its columns are those of
        :func:`streamproof.engines.spark.kafka_to_kafka.transform`."""

    def recover(self, job: Job) -> dict[str, Any]:
        """Finish or undo what an earlier start left in the sink, before the query starts. Returns what was done, for the journal.
        May be called at any time when no driver of the job runs, and repeated."""
        return {}

    def starting_offsets(self, job: Job) -> str:
        """Where the source starts when the checkpoint does not say: ``earliest`` or offsets as JSON."""
        return "earliest"

    def watch(self, job: Job, failpoint: str) -> Watch:
        """How the crash window of a watched step is seen. Only asked for steps at ``Site.WATCHED``."""
        raise KeyError(f"{self.name} has no watched step {failpoint!r}")
