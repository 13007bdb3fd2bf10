"""A table of the user's own in PostgreSQL: made by the user's SQL or by the job itself, with whatever columns it has.

The run has a schema of its own, which is the search path of the job's connections: what the job makes without naming a schema (a ledger,
staging tables) lies there too, and goes with it. Nothing is added to the table.

A row's place is where it lies in the table (its ``ctid``, as a number), which no one changes once nobody writes. Its time is that of the
commit of its last write: of a row that the job updated later, that is later than it was first visible.

The drain reads the identity's columns. The second reader reads whole rows, as JSON of which the suites find the identity.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from streamproof.evidence import locations
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.locations import Found
from streamproof.evidence.second_reading import Stretch
from streamproof.jobs.job import Job
from streamproof.sinks.delivered import Delivered
from streamproof.sinks.own_schema import schema_of
from streamproof.sinks.postgres import tables as postgres
from streamproof.sinks.postgres.drain import DECIDED_S, connected, undecided, wait_for_writers
from streamproof.sinks.postgres.tables import Connection, Tables
from streamproof.sinks.sink import Row
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import TestbedError
from streamproof.verdict.timing.recovery import Stamps

READ_RECORDS = 50_000
UNKNOWN_MS = 0
# A page of 8 kB holds at most 291 rows.
_POSITION = "(ctid::text::point)[0]::bigint * 512 + (ctid::text::point)[1]::bigint"
_AT_MS = f"coalesce(floor(extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000)::bigint, {UNKNOWN_MS})"
_DRAIN = f"SELECT {_POSITION}, {_AT_MS}, {{columns}} FROM {{table}} ORDER BY ctid"
_ROWS = f"""
    SELECT 0, place, NULL::bigint, NULL::int, NULL::int, at_ms, NULL::bytea, convert_to(row, 'UTF8')
    FROM (SELECT {_POSITION} AS place, {_AT_MS} AS at_ms, to_jsonb(own)::text AS row FROM {{table}} AS own) AS read
    WHERE place <@ %s::int8multirange ORDER BY place"""
_ENDS = f"SELECT coalesce(max({_POSITION}) + 1, 0) FROM {{table}}"
_END = f"SELECT count(*), coalesce(max({_POSITION}), 0), coalesce(max(xmin::text::bigint), 0) FROM {{table}}"


class PostgresRows:
    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        schema, ddl = sql.Identifier(schema_of(job)), job.output["ddl"]
        with connected(testbed) as connection:
            Tables(schema_of(job)).drop(connection)
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
            if ddl is None:
                return
            connection.execute(sql.SQL("SET search_path TO {}").format(schema))
            try:
                connection.execute(ddl.encode())
            except psycopg.Error as error:
                raise TestbedError(f"job: delivers.postgres.ddl: PostgreSQL refuses it: {' '.join(str(error).split())}") from error
            _table(connection, job)

    def drain(self, folder: RunFolder, job: Job, testbed: Testbed, timeout_s: float) -> dict[str, Any]:
        begun, tables, end = time.monotonic(), Tables(schema_of(job)), 0
        with connected(testbed) as connection:
            wait_for_writers(connection, tables, begun + min(timeout_s, DECIDED_S))
            terminated = postgres.terminate(connection, tables)
            reason = undecided(connection, tables)
            table = _table(connection, job)
            delivered = Delivered(folder)
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            last = _end(connection, table, tables)
            for rows in _read(connection, table, job.location_delivered.names):
                delivered.write(_columns(rows))
                end = rows[-1][0] + 1
                if time.monotonic() - begun > timeout_s:
                    reason = reason or f"the table was not read to its end within {timeout_s:.0f} s"
                    break
            connection.execute("COMMIT")
        return delivered.settle(reason, {0: end}, Stamps.VISIBLE, last, terminated=terminated)

    def end(self, job: Job, testbed: Testbed) -> Any:
        """How many rows there are, the last position, the youngest transaction that wrote one, and the transactions that may write more."""
        with connected(testbed) as connection:
            return _end(connection, _table(connection, job), Tables(schema_of(job)))

    def reader(self, job: Job, testbed: Testbed) -> RowsReader:
        return RowsReader()

    def follower(self, job: Job, testbed: Testbed) -> RowsFollower:
        return RowsFollower(job, testbed)

    def ends_again(self, job: Job, testbed: Testbed, timeout_s: float) -> dict[int, int]:
        with connected(testbed) as connection:
            last = connection.execute(sql.SQL(_ENDS).format(table=_table(connection, job))).fetchone()
        return {0: last[0] if last is not None else 0}

    def rows(self, job: Job, testbed: Testbed, run: str, stretches: Sequence[Stretch], timeout_s: float) -> Iterator[Row]:
        positions = f"{{{','.join(f'[{stretch.since},{stretch.until})' for stretch in stretches)}}}"
        with connected(testbed) as connection, connection.cursor(binary=True) as cursor:
            yield from cursor.execute(sql.SQL(_ROWS).format(table=_table(connection, job)), [positions])

    def load(self) -> None:
        """All of it is there."""

    def delete(self, job: Job, testbed: Testbed) -> None:
        with connected(testbed) as connection:
            Tables(schema_of(job)).drop(connection)


class RowsReader:
    """No row names the batch that wrote it."""

    def visible(self) -> dict[int, int]:
        return {}

    def close(self) -> None:
        """Nothing is open."""


class RowsFollower:
    """Reads the identities of all rows, each time."""

    def __init__(self, job: Job, testbed: Testbed) -> None:
        self._job, self._testbed = job, testbed

    def identities(self) -> list[Found]:
        columns = _texts(self._job.location_delivered.names)
        try:
            with connected(self._testbed) as connection:
                query = sql.SQL("SELECT {} FROM {}").format(columns, _table(connection, self._job))
                return [locations.of_columns(row) for row in connection.execute(query).fetchall()]
        except psycopg.Error as error:
            raise TestbedError(f"postgres does not say which rows there are: {error}") from error

    def close(self) -> None:
        """Nothing is open."""


def _table(connection: Connection, job: Job) -> sql.Identifier:
    """The output table. Raises EvidenceError when it is not there, is no table, or lacks a column of the identity."""
    schema, name, wanted = schema_of(job), job.output["table"], job.location_delivered.names
    kinds = dict(
        connection.execute(
            "SELECT relname, relkind::text FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'p', 'v', 'm', 'f')",
            [schema],
        ).fetchall()
    )
    if name not in kinds:
        there = ", ".join(sorted(kinds)) or "none"
        raise EvidenceError(
            f"the job's schema {schema} has no table {name}: nobody made it, or the run was restored; tables there: {there}"
        )
    if kinds[name] != "r":
        raise EvidenceError(f"{schema}.{name} is a view, or a table in partitions: only the rows of a plain table can be read")
    rows = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [f'{schema}."{name}"'],
    )
    columns = [column for (column,) in rows]
    if missing := [column for column in wanted if column not in columns]:
        raise EvidenceError(f"{schema}.{name} has no column {missing[0]} for the identity; it has: {', '.join(columns)}")
    return sql.Identifier(schema, name)


def _end(connection: Connection, table: sql.Identifier, tables: Tables) -> dict[str, Any]:
    ((rows, position, transaction),) = connection.execute(sql.SQL(_END).format(table=table)).fetchall()
    return {"rows": rows, "position": position, "transaction": transaction, "open": sorted(postgres.open_writers(connection, tables))}


def _read(connection: Connection, table: sql.Identifier, columns: Sequence[str]) -> Iterator[list[Row]]:
    """The rows in their order: position, time, and the columns of the identity as text."""
    texts = _texts(columns)
    with connection.cursor(name="streamproof_drain") as cursor:
        cursor.execute(sql.SQL(_DRAIN).format(columns=texts, table=table))
        while rows := cursor.fetchmany(READ_RECORDS):
            yield rows


def _texts(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(column)) for column in columns)


def _columns(rows: Sequence[Row]) -> Mapping[str, Any]:
    """These rows as columns of ``delivered/``. What a row says beside its identity is not judged: its checksum is 0, as in ``sent/``."""
    found, nothing = [locations.of_columns(tuple(row[2:])) for row in rows], [None] * len(rows)
    return {
        "producer": [one and one[0] for one in found],
        "sequence": [one and one[1] for one in found],
        "crc": [0 if one else None for one in found],
        "partition": [0] * len(rows),
        "offset": [row[0] for row in rows],
        "batch": nothing,
        "attempt": nothing,
        "start": nothing,
        "delivered_at": [row[1] for row in rows],
    }
