"""Commit strategies: how a streaming job commits its output and its progress through the source.

One file each. A strategy is registered by naming its module here; importing this package imports neither Spark nor Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from delivery.guarantee import Guarantee
from pipelines.failpoints import Failpoint
from pipelines.job import Job
from pipelines.strategies.checkpoint import Checkpoint
from pipelines.strategies.offset_commit import OffsetCommit
from pipelines.strategies.two_phase_commit import TwoPhaseCommit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


class Strategy(Protocol):
    """What the driver asks of a strategy."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def guarantee(self) -> Guarantee: ...

    @property
    def failpoints(self) -> tuple[Failpoint, ...]: ...

    def recover(self, job: Job) -> dict[str, Any]:
        """Finish or undo what an earlier start left in the sink, before the query starts. Returns what was done, for the journal.
        May be called at any time when no driver of the job runs, and repeated."""

    def starting_offsets(self, job: Job) -> str:
        """Where the source starts when the checkpoint does not say: ``earliest`` or offsets as JSON."""

    def start(self, frame: DataFrame, job: Job) -> StreamingQuery:
        """Start the query that delivers ``frame`` (columns key, value) to the job's output."""


_ALL: tuple[Strategy, ...] = (Checkpoint(), OffsetCommit(), TwoPhaseCommit())
STRATEGIES: dict[str, Strategy] = {strategy.name: strategy for strategy in _ALL}


def get(name: str) -> Strategy:
    """Raises KeyError naming the strategies there are."""
    try:
        return STRATEGIES[name]
    except KeyError:
        raise KeyError(f"there is no strategy {name!r}; there are: {', '.join(STRATEGIES)}") from None
