"""Commit strategies: how a streaming job commits its output and its progress through the source.

One file each. A strategy is registered by naming it in ``_ALL``; one that lives outside of this repository by naming it in the
environment, ``STREAMPROOF_STRATEGIES=package.module:Class`` (several with commas between). Importing this package imports neither Spark
nor a client of Kafka or PostgreSQL.
"""

from __future__ import annotations

import importlib
import os

from streamproof.engines.spark.strategies.at_most_once import AtMostOnce
from streamproof.engines.spark.strategies.checkpoint import Checkpoint
from streamproof.engines.spark.strategies.file_sink import FileSink, FileSinkListed
from streamproof.engines.spark.strategies.offset_commit import OffsetCommit
from streamproof.engines.spark.strategies.offset_in_transaction import OffsetInTransaction
from streamproof.engines.spark.strategies.postgres_ledger import PostgresLedger, PostgresLedgerSingle
from streamproof.engines.spark.strategies.postgres_two_phase_commit import PostgresTwoPhaseCommit
from streamproof.engines.spark.strategies.postgres_upsert import PostgresUpsert
from streamproof.engines.spark.strategies.strategy import Strategy
from streamproof.engines.spark.strategies.two_phase_commit import TwoPhaseCommit

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
