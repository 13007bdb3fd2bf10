"""Where a strategy delivers to."""

from __future__ import annotations

from enum import StrEnum


class Sink(StrEnum):
    """KAFKA: the job's output topic. POSTGRES: a table. FILES: a folder of Parquet files."""

    KAFKA = "kafka"
    POSTGRES = "postgres"
    FILES = "files"
