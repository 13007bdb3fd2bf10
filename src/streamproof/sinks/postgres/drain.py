"""The output table in PostgreSQL.

The drain reads one snapshot, in the order of the rows' positions, with a binary COPY whose rows begin alike: numpy takes the columns of a
fixed width apart. A delivery's time is that of its commit, as the server tracks it, not that of its writing: a prepared row is written
long before anyone can see it.

While a transaction of the query is prepared, part of the output is neither there nor not there. PostgreSQL never ends one by itself, so a
drain that still finds one after a moment says so, and what is missing is then not known to be lost.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import psycopg

from streamproof.evidence import identity
from streamproof.evidence.folder import RunFolder
from streamproof.jobs.job import Job
from streamproof.sinks.delivered import Delivered
from streamproof.sinks.postgres import tables as postgres
from streamproof.sinks.postgres.tables import Connection, Tables
from streamproof.sinks.sink import Row
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import TestbedError
from streamproof.verdict.timing.recovery import Stamps

READ_RECORDS = 500_000
DECIDED_S = 5.0

_QUERY = """
    COPY (
        SELECT position, start, batch, attempt,
            floor(extract(epoch FROM coalesce(pg_xact_commit_timestamp(xmin), written_at)) * 1000)::bigint, value
        FROM {delivered} ORDER BY position
    ) TO STDOUT (FORMAT binary)
"""
_ROWS = """
    SELECT 0, position, batch, attempt, start,
        floor(extract(epoch FROM coalesce(pg_xact_commit_timestamp(xmin), written_at)) * 1000)::bigint, key, value
    FROM {delivered} ORDER BY position
"""
_HEAD = np.dtype(
    [
        ("fields", ">i2"),
        *(
            part
            for name, kind in (("position", ">i8"), ("start", ">i4"), ("batch", ">i8"), ("attempt", ">i4"), ("at_ms", ">i8"))
            for part in ((f"{name}_width", ">i4"), (name, kind))
        ),
        ("value_length", ">i4"),
    ]
)


class PostgresTable:
    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        with _connected(testbed) as connection:
            Tables(job.name).create(connection)

    def drain(self, folder: RunFolder, job: Job, testbed: Testbed, timeout_s: float) -> dict[str, Any]:
        begun, tables, end = time.monotonic(), Tables(job.name), 0
        delivered = Delivered(folder)
        with _connected(testbed) as connection:
            reason = _undecided(connection, tables, begun + min(timeout_s, DECIDED_S))
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            for columns in _read(connection, tables):
                delivered.write(columns)
                end = int(columns["offset"][-1]) + 1
                if time.monotonic() - begun > timeout_s:
                    reason = reason or f"the table was not read to its end within {timeout_s:.0f} s"
                    break
            connection.execute("COMMIT")
        return delivered.settle(reason, {0: end}, Stamps.VISIBLE)

    def reader(self, job: Job, testbed: Testbed) -> PostgresReader:
        return PostgresReader(testbed.direct_postgres, Tables(job.name))

    def rows(self, job: Job, testbed: Testbed, run: str, drained: dict[str, Any], timeout_s: float) -> Iterator[Row]:
        tables = Tables(job.name)
        with _connected(testbed) as connection, connection.cursor(binary=True) as cursor:
            yield from cursor.execute(tables.named(_ROWS))

    def load(self) -> None:
        """All of it is there."""

    def delete(self, job: Job, testbed: Testbed) -> None:
        with _connected(testbed) as connection:
            Tables(job.name).drop(connection)


class PostgresReader:
    """Counts the committed rows of each batch, as any other session sees them."""

    def __init__(self, conninfo: str, tables: Tables) -> None:
        self._connection = postgres.connect(conninfo, autocommit=True)
        self._count = tables.named("SELECT batch, count(*) FROM {delivered} GROUP BY batch")

    def visible(self) -> dict[int, int]:
        try:
            return dict(self._connection.execute(self._count).fetchall())
        except psycopg.errors.UndefinedTable:  # the output was deleted: the run is over
            return {}

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _connected(testbed: Testbed) -> Iterator[Connection]:
    """A connection beside the proxy, in autocommit. Raises TestbedError when there is none."""
    try:
        connection = postgres.connect(testbed.direct_postgres, autocommit=True)
    except psycopg.OperationalError as error:
        raise TestbedError(f"postgres does not answer ({error}). Is the testbed up? `streamproof testbed status`") from error
    with closing(connection):
        yield connection


def _undecided(connection: Connection, tables: Tables, deadline: float) -> str | None:
    """Why the output is not settled: the query's transactions that are still prepared at ``deadline``; None when there are none."""
    while gids := postgres.prepared(connection, f"{tables.schema}:"):
        if time.monotonic() > deadline:
            return f"{len(gids)} prepared transactions of the query are open: {', '.join(gids[:3])}"
        time.sleep(0.1)
    return None


def _read(connection: Connection, tables: Tables) -> Iterator[dict[str, Any]]:
    """The table's rows as columns of ``delivered/``, at most ``READ_RECORDS`` at once."""
    with connection.cursor() as cursor, cursor.copy(tables.named(_QUERY)) as copy:
        rows = _rows(copy)
        while columns := _columns(itertools.islice(rows, READ_RECORDS)):
            yield columns


def _columns(rows: Iterable[memoryview]) -> dict[str, Any]:
    """These rows as columns of ``delivered/``; nothing for no rows."""
    heads, decoded = bytearray(), []
    for row in rows:
        heads += row[: _HEAD.itemsize]
        decoded.append(identity.decode(bytes(row[_HEAD.itemsize :])))
    if not decoded:
        return {}
    head = np.frombuffer(heads, _HEAD)
    return {
        "producer": [record and record.producer for record in decoded],
        "sequence": [record and record.sequence for record in decoded],
        "crc": [record.crc if record and record.intact else None for record in decoded],
        "partition": np.zeros(len(decoded), np.int32),
        "offset": head["position"].astype(np.int64),
        "batch": head["batch"].astype(np.int64),
        "attempt": head["attempt"].astype(np.int32),
        "start": head["start"].astype(np.int32),
        "delivered_at": head["at_ms"].astype("datetime64[ms]"),
    }


def _rows(copy: psycopg.Copy) -> Iterator[memoryview]:
    """The rows of a binary COPY: the server sends one message for each, the first with the file's signature before it."""
    skip = len(postgres.SIGNATURE)
    for message in copy:
        row = memoryview(message)[skip:]
        skip = 0
        if row != postgres.TRAILER:
            yield row
