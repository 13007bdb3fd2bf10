"""Where a stateful Spark job keeps its state."""

from __future__ import annotations

from enum import StrEnum


class StateStore(StrEnum):
    """Spark's default store, in memory and in files of changes, or RocksDB."""

    DEFAULT = "default"
    ROCKSDB = "rocksdb"
