"""The output table in PostgreSQL.

The drain reads one snapshot, in the order of the rows' positions, with a binary COPY whose rows begin alike: numpy takes the columns of a
fixed width apart. A delivery's time is that of its commit, as the server tracks it, not that of its writing: a prepared row is written
long before anyone can see it.

While a transaction that wrote to the tables is open, part of the output is neither there nor not there. One in progress gets a moment to
end, then its session is ended and it is rolled back. One that is prepared PostgreSQL never ends by itself, whatever its name: a drain that
still finds one after a moment says so, and what is missing is then not known to be lost.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import psycopg

from streamproof.evidence import identity
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.second_reading import Stretch
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

_AT_MS = """floor(extract(epoch FROM coalesce(
    pg_xact_commit_timestamp(coalesce(first_transaction, xmin)), written_at)) * 1000)::bigint"""
"""When a row first became visible: an update keeps the transaction that made it so."""
_QUERY = """
    COPY (
        SELECT position, start, batch, attempt,
            {at_ms}, value, key
        FROM {delivered} ORDER BY position
    ) TO STDOUT (FORMAT binary)
""".replace("{at_ms}", _AT_MS)
_ROWS = """
    SELECT 0, position, batch, attempt, start,
        {at_ms}, key, value
    FROM {delivered} WHERE position <@ %s::int8multirange ORDER BY position
""".replace("{at_ms}", _AT_MS)
_ENDS = "SELECT position + 1 FROM {delivered} ORDER BY position DESC LIMIT 1"
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
        with connected(testbed) as connection:
            Tables(job.name).create(connection)

    def drain(self, folder: RunFolder, job: Job, testbed: Testbed, timeout_s: float) -> dict[str, Any]:
        begun, tables, end = time.monotonic(), Tables(job.name), 0
        delivered = Delivered(folder)
        with connected(testbed) as connection:
            wait_for_writers(connection, tables, begun + min(timeout_s, DECIDED_S))
            terminated = postgres.terminate(connection, tables)
            reason = undecided(connection, tables)
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            rows = _end(connection, tables)
            for columns in _read(connection, tables):
                delivered.write(columns)
                end = int(columns["offset"][-1]) + 1
                if time.monotonic() - begun > timeout_s:
                    reason = reason or f"the table was not read to its end within {timeout_s:.0f} s"
                    break
            connection.execute("COMMIT")
        return delivered.settle(reason, {0: end}, Stamps.VISIBLE, rows, terminated=terminated)

    def end(self, job: Job, testbed: Testbed) -> Any:
        """How many rows there are, the last position, the youngest transaction that wrote one, and the transactions that may write more."""
        with connected(testbed) as connection:
            try:
                return _end(connection, Tables(job.name))
            except psycopg.errors.UndefinedTable as error:
                raise EvidenceError(f"there is no output table: the run was not prepared, or was restored already ({error})") from error

    def reader(self, job: Job, testbed: Testbed) -> PostgresReader:
        return PostgresReader(testbed.direct_postgres, Tables(job.name))

    def ends_again(self, job: Job, testbed: Testbed, timeout_s: float) -> dict[int, int]:
        with connected(testbed) as connection:
            last = connection.execute(Tables(job.name).named(_ENDS)).fetchone()
        return {0: last[0] if last is not None else 0}

    def rows(self, job: Job, testbed: Testbed, run: str, stretches: Sequence[Stretch], timeout_s: float) -> Iterator[Row]:
        positions = f"{{{','.join(f'[{stretch.since},{stretch.until})' for stretch in stretches)}}}"
        with connected(testbed) as connection, connection.cursor(binary=True) as cursor:
            yield from cursor.execute(Tables(job.name).named(_ROWS), [positions])

    def load(self) -> None:
        """All of it is there."""

    def delete(self, job: Job, testbed: Testbed) -> None:
        with connected(testbed) as connection:
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
def connected(testbed: Testbed) -> Iterator[Connection]:
    """A connection beside the proxy, in autocommit. Raises TestbedError when there is none."""
    try:
        connection = postgres.connect(testbed.direct_postgres, autocommit=True)
    except psycopg.OperationalError as error:
        raise TestbedError(f"postgres does not answer ({error}). Is the testbed up? `streamproof testbed status`") from error
    with closing(connection):
        yield connection


def _end(connection: Connection, tables: Tables) -> dict[str, Any]:
    count = "SELECT count(*), coalesce(max(position), 0), coalesce(max(xmin::text::bigint), 0) FROM {delivered}"
    ((rows, position, transaction),) = connection.execute(tables.named(count)).fetchall()
    return {"rows": rows, "position": position, "transaction": transaction, "open": sorted(postgres.open_writers(connection, tables))}


def wait_for_writers(connection: Connection, tables: Tables, deadline: float) -> None:
    """Wait until no transaction writes to the tables, or for ``deadline``. A session ends its own once it sees that its client is gone."""
    while postgres.open_writers(connection, tables) or postgres.prepared(connection, f"{tables.schema}:"):
        if time.monotonic() > deadline:
            return
        time.sleep(0.1)


def undecided(connection: Connection, tables: Tables) -> str | None:
    """Why the output is not settled: the transactions that are prepared or write to the tables; None when there are none."""
    writers = postgres.open_writers(connection, tables)
    gids = sorted({*postgres.prepared(connection, f"{tables.schema}:"), *(gid for gid in writers.values() if gid)})
    if gids:
        return f"{len(gids)} prepared transactions are open that may have written to the output: {', '.join(gids[:3])}"
    return f"{len(writers)} sessions still write to the output: {', '.join(writers)}" if writers else None


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
        decoded.append(identity.decode(*_value_and_key(row)))
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


def _value_and_key(row: memoryview) -> tuple[bytes | None, bytes | None]:
    """What follows the columns of a fixed width: two fields, each behind its length, which is -1 for a null."""
    at, fields = _HEAD.itemsize - 4, []
    for _ in range(2):
        size = int.from_bytes(row[at : at + 4], signed=True)
        fields.append(None if size < 0 else bytes(row[at + 4 : at + 4 + size]))
        at += 4 + max(size, 0)
    return fields[0], fields[1]


def _rows(copy: psycopg.Copy) -> Iterator[memoryview]:
    """The rows of a binary COPY: the server sends one message for each, the first with the file's signature before it."""
    skip = len(postgres.SIGNATURE)
    for message in copy:
        row = memoryview(message)[skip:]
        skip = 0
        if row != postgres.TRAILER:
            yield row
