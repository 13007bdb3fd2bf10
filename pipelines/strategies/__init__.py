"""Commit strategies: how a streaming job commits its output and its progress through the source.

One file each. A strategy is registered by naming it in ``_ALL``; one that lives outside of this repository by naming it in the
environment, ``STREAMPROOF_STRATEGIES=package.module:Class`` (several with commas between). Importing this package imports neither Spark
nor a client of Kafka or PostgreSQL.
"""

from __future__ import annotations

import importlib
import os

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
ENVIRONMENT = "STREAMPROOF_STRATEGIES"


def _named_by_environment() -> tuple[Strategy, ...]:
    """The user's own strategies. Raises ValueError naming the entry that cannot be used."""
    found = []
    for entry in filter(None, (part.strip() for part in os.environ.get(ENVIRONMENT, "").split(","))):
        module, _, name = entry.partition(":")
        try:
            found.append(getattr(importlib.import_module(module), name)())
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"{ENVIRONMENT}: {entry!r} is not a strategy ({error}); expected package.module:Class") from error
    return tuple(found)


STRATEGIES: dict[str, Strategy] = {strategy.name: strategy for strategy in (*_ALL, *_named_by_environment())}


def get(name: str) -> Strategy:
    """Raises KeyError naming the strategies there are."""
    try:
        return STRATEGIES[name]
    except KeyError:
        raise KeyError(f"there is no strategy {name!r}; there are: {', '.join(STRATEGIES)}") from None


__all__ = ["STRATEGIES", "Strategy", "get"]
