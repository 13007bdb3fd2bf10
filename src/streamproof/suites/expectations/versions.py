"""The versions of an output that keeps some, as a view and three tables.

shown             producer, sequence, since, until: a row of the output, from the version that showed it until the one that did not
version_times     number, at_ms: when each version was committed
judged_versions   number: the versions of which every file could be read
unread_versions   missing: what is not known of them
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import duckdb

from .files import Unreadable, document, parquet, table

COLUMNS = "producer INTEGER, sequence BIGINT, since INTEGER, until INTEGER"
NO_VERSIONS = "an output that keeps no versions"


def define(connection: duckdb.DuckDBPyConnection, folder: Path, keep: Collection[str] = ()) -> None:
    """Raises Unreadable."""
    said = folder / "versions" / "versions.json"
    known = document(said, "versions", "unread") if said.exists() else None
    parquet(connection, "shown", folder / "versions", COLUMNS, keep)
    versions = [] if known is None else known["versions"]
    judged = [[number] for number, version in enumerate(versions) if version["whole"]]
    table(connection, "judged_versions", {"number": "INTEGER"}, judged)
    times = [[number, version["at_ms"]] for number, version in enumerate(versions)]
    table(connection, "version_times", {"number": "INTEGER", "at_ms": "BIGINT"}, times)
    unread = [NO_VERSIONS] if known is None else known["unread"]
    table(connection, "unread_versions", {"missing": "VARCHAR"}, [[missing] for missing in unread])
    beyond = f"SELECT 1 FROM shown WHERE since < 0 OR until <= since OR since >= {len(versions)} OR until >= {len(versions)} LIMIT 1"
    if connection.execute(beyond).fetchone() is not None:
        raise Unreadable(f"{folder / 'versions'} holds a row of a version that there is not, or one that was gone before it was there")
