"""Commit strategies: how a streaming job commits its output and its progress through the source.

One file each. A strategy is registered by naming its module here; importing this package imports neither Spark
nor a client of Kafka or PostgreSQL.
"""

from __future__ import annotations

from pipelines.strategies.at_most_once import AtMostOnce
from pipelines.strategies.checkpoint import Checkpoint
from pipelines.strategies.file_sink import FileSink, FileSinkListed
from pipelines.strategies.offset_commit import OffsetCommit
from pipelines.strategies.offset_in_transaction import OffsetInTransaction
from pipelines.strategies.postgres_ledger import PostgresLedger, PostgresLedgerSingle
from pipelines.strategies.postgres_two_phase_commit import PostgresTwoPhaseCommit
from pipelines.strategies.postgres_upsert import PostgresUpsert
from pipelines.strategies.strategy import Strategy
from pipelines.strategies.two_phase_commit import TwoPhaseCommit

_ALL: tuple[Strategy, ...] = (
    AtMostOnce(),
    Checkpoint(),
    OffsetCommit(),
    OffsetInTransaction(),
    TwoPhaseCommit(),
    FileSink(),
    FileSinkListed(),
    PostgresLedger(),
    PostgresLedgerSingle(),
    PostgresUpsert(),
    PostgresTwoPhaseCommit(),
)
STRATEGIES: dict[str, Strategy] = {strategy.name: strategy for strategy in _ALL}


def get(name: str) -> Strategy:
    """Raises KeyError naming the strategies there are."""
    try:
        return STRATEGIES[name]
    except KeyError:
        raise KeyError(f"there is no strategy {name!r}; there are: {', '.join(STRATEGIES)}") from None


__all__ = ["STRATEGIES", "Strategy", "get"]
