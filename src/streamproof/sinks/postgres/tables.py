"""Output in PostgreSQL: a schema for each query, its rows by binary COPY, and transactions that one process prepares and another ends.

The schema holds three tables. ``delivered`` has a row for each record that was delivered: what came (``key``, ``value``), where from
(``source_partition``, ``source_offset``), and who wrote it (``start``, ``batch``, ``attempt``); ``position`` counts the rows. It has no
index but that of an upsert, and does not ask for the time of each row: each of the two took a third of a COPY's time. ``ledger`` and
``decisions`` are the strategies' own memory, beside the output so that one transaction can hold both.

A transaction is *prepared* once PREPARE TRANSACTION returned: it is on disk, belongs to no connection, survives a crash of the server,
and anyone of the same role may end it by its name, the gid. It holds its locks until then, for ever if nobody comes.

Checked against: PostgreSQL 18.4. COMMIT PREPARED of a gid that is not prepared answers 42704 (undefined_object), whether it was
committed, rolled back or never there; only a row that the transaction itself wrote can tell. A gid that another session is just ending
answers 55000 (object_not_in_prerequisite_state): ask again. A gid has at most 199 bytes and a schema's name at most 63.
"""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors, sql

from streamproof.kafka.transactions import TransactionLost

if TYPE_CHECKING:
    import pyarrow as pa

Connection = psycopg.Connection[Any]
LOCK_TIMEOUT_MS = 10_000
STATEMENT_TIMEOUT_MS = 60_000
IDLE_TIMEOUT_MS = 30_000
FINISH_S = 15.0
NAME_BYTES = 63
# COPY's columns: those of a fixed width come first, so that all rows begin alike.
COLUMNS = ("start", "batch", "attempt", "source_partition", "source_offset", "key", "value")
SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
# A record's identity as its value carries it (see streamproof.evidence.identity), else its place in the source. Looking at single bytes
# takes a thirtieth of the time of a regular expression.
IDENTITY = """
    CASE WHEN substring(value from 1 for 7) = '{{"id":"' AND substring(value from 12 for 1) = '-' AND octet_length(value) > 24
        AND translate(encode(substring(value from 8 for 17), 'escape'), '0123456789abcdef', '') = '-'
    THEN encode(substring(value from 8 for 17), 'escape') ELSE source_partition || ':' || source_offset END
"""


def connect(conninfo: str, *, autocommit: bool = False) -> Connection:
    """A connection on which no statement waits for ever, for a lock or otherwise. Raises psycopg.OperationalError."""
    limits = {
        "lock_timeout": LOCK_TIMEOUT_MS,
        "statement_timeout": STATEMENT_TIMEOUT_MS,
        "idle_in_transaction_session_timeout": IDLE_TIMEOUT_MS,
    }
    options = " ".join(f"-c {name}={limit_ms}" for name, limit_ms in limits.items())
    return psycopg.connect(conninfo, autocommit=autocommit, options=options, application_name="streamproof")


@contextmanager
def kept(conninfo: str) -> Iterator[Connection]:
    """A connection that this process keeps for its next task: Spark reuses Python workers, each for one task at a time.

    One whose server was away since is replaced; one whose task failed is closed, and with it ends what the task had begun.
    """
    connection = _kept.pop(conninfo, None)
    if connection is None or not _answers(connection):
        connection = connect(conninfo)
    try:
        yield connection
        connection.rollback()  # of a task that only looked
    except BaseException:
        connection.close()
        raise
    _kept[conninfo] = connection


_kept: dict[str, Connection] = {}


def _answers(connection: Connection) -> bool:
    try:
        connection.execute("SELECT 1")
        connection.rollback()
    except psycopg.OperationalError:
        connection.close()
        return False
    return True


# --- tables -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tables:
    """The tables of ``query``. Their schema has the query's name, shortened with a checksum where it is longer than a name may be."""

    query: str

    @property
    def schema(self) -> str:
        name = self.query.encode()
        if len(name) <= NAME_BYTES:
            return self.query
        return f"{name[: NAME_BYTES - 9].decode(errors='ignore')}-{zlib.crc32(name):08x}"

    def named(self, statement: str) -> sql.Composed:
        """``statement`` with the names of the tables in place of ``{delivered}``, ``{ledger}``, ``{decisions}``, ... and ``{schema}``."""
        tables = {name: sql.Identifier(self.schema, name) for name in ("delivered", "ledger", "decisions", "keep_first")}
        return sql.SQL(statement).format(schema=sql.Identifier(self.schema), **tables)

    def create(self, connection: Connection) -> None:
        """Make the schema and its tables. Those that are there stay as they are."""
        connection.execute(self.named("CREATE SCHEMA IF NOT EXISTS {schema}"))
        connection.execute(
            self.named(
                """
                CREATE TABLE IF NOT EXISTS {delivered} (
                    position bigint GENERATED ALWAYS AS IDENTITY, written_at timestamptz NOT NULL DEFAULT now(),
                    start int NOT NULL, batch bigint NOT NULL, attempt int NOT NULL,
                    source_partition int NOT NULL, source_offset bigint NOT NULL, key bytea, value bytea, identity text,
                    first_transaction xid)
                """
            )
        )
        # An update makes a new row, and with it the time of its commit: what was visible before keeps the transaction that made it so.
        connection.execute(
            self.named(
                """
                CREATE OR REPLACE FUNCTION {keep_first} () RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN NEW.first_transaction := coalesce(OLD.first_transaction, OLD.xmin); RETURN NEW; END $$
                """
            )
        )
        connection.execute(
            self.named(
                """
                CREATE OR REPLACE TRIGGER keep_first BEFORE UPDATE ON {delivered} FOR EACH ROW EXECUTE FUNCTION {keep_first} ()
                """
            )
        )
        # Only an upsert fills it in; the others' rows are not in this index, and cost it nothing.
        connection.execute(
            self.named("CREATE UNIQUE INDEX IF NOT EXISTS delivered_identity ON {delivered} (identity) WHERE identity IS NOT NULL")
        )
        # A row says that the records of a source partition were written, and which; it is committed with them. ``gid`` is '' in one-phase
        # transactions. The partition is the source's: after a restart Spark numbers the partitions of the same batch differently.
        connection.execute(
            self.named(
                """
                CREATE TABLE IF NOT EXISTS {ledger} (
                    batch bigint, partition int, gid text, attempt int NOT NULL, first_offset bigint NOT NULL, last_offset bigint NOT NULL,
                    PRIMARY KEY (batch, partition, gid))
                """
            )
        )
        connection.execute(
            self.named(
                """
                CREATE TABLE IF NOT EXISTS {decisions} (
                    batch bigint PRIMARY KEY, gids text[] NOT NULL, decided_at timestamptz NOT NULL DEFAULT clock_timestamp(),
                    finished_at timestamptz)
                """
            )
        )

    def drop(self, connection: Connection) -> None:
        """Roll back whatever holds locks on the tables, and drop the schema with all that is in it."""
        for gid in {*prepared(connection, f"{self.schema}:"), *(gid for gid in open_writers(connection, self).values() if gid)}:
            roll_back_prepared(connection, gid)
        terminate(connection, self)
        connection.execute(self.named("DROP SCHEMA IF EXISTS {schema} CASCADE"))


# --- rows -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Origin:
    """Who writes: the driver's start, the micro-batch, and the attempt of the task."""

    start: int
    batch: int
    attempt: int


def encode(records: pa.RecordBatch, origin: Origin) -> memoryview:
    """``records`` (columns key, value, source_partition, source_offset) as rows of a binary COPY into ``COLUMNS``.

    Each row is a head of 54 bytes, the key, the value's length and the value. numpy writes all heads and lengths at once, Arrow joins
    them with the columns' own bytes; no Python object is made per row.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    keys, values = (records.column(name).cast(pa.large_binary()) for name in ("key", "value"))
    head = np.zeros(records.num_rows, _HEAD)
    for field, kind in _FIXED:
        head[f"{field}_width"] = _WIDTHS[kind]
    head["fields"], head["start"], head["batch"], head["attempt"] = len(COLUMNS), origin.start, origin.batch, origin.attempt
    head["source_partition"] = records.column("source_partition").to_numpy(zero_copy_only=False)
    head["source_offset"] = records.column("source_offset").to_numpy(zero_copy_only=False)
    head["key_length"] = _lengths(keys)
    parts = [_as_binary(head), keys, _as_binary(_lengths(values).astype(">i4")), values]
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()), null_handling="replace", null_replacement=b"")
    return _bytes_of(joined)


_FIXED = (("start", ">i4"), ("batch", ">i8"), ("attempt", ">i4"), ("source_partition", ">i4"), ("source_offset", ">i8"))
_WIDTHS = {">i4": 4, ">i8": 8}
_HEAD = [
    ("fields", ">i2"),
    *(part for field, kind in _FIXED for part in ((f"{field}_width", ">i4"), (field, kind))),
    ("key_length", ">i4"),
]


def _lengths(column: pa.Array) -> Any:
    """The length of each value in bytes, -1 for null as COPY wants it."""
    import pyarrow.compute as pc

    return pc.binary_length(column).fill_null(-1).to_numpy(zero_copy_only=False)


def _as_binary(rows: Any) -> pa.Array:
    """A numpy array as an Arrow column whose values are its elements' bytes, without a copy."""
    import numpy as np
    import pyarrow as pa

    offsets = np.arange(0, rows.nbytes + 1, rows.itemsize, dtype=np.int64)
    return pa.Array.from_buffers(pa.large_binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows)])


def _bytes_of(column: pa.Array) -> memoryview:
    """All values of a column without nulls, one after the other."""
    import numpy as np

    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])]


def copy_in(connection: Connection, statement: sql.Composed, records: Iterable[pa.RecordBatch], origin: Origin) -> Copied:
    """Carry out ``statement``, a binary COPY ... FROM STDIN of ``COLUMNS``, with ``records``. Says what went in."""
    copied = Copied()
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(SIGNATURE)
        for batch in records:
            if batch.num_rows:
                copied.add(batch)
                copy.write(encode(batch, origin))
        copy.write(TRAILER)
    return copied


def append(connection: Connection, tables: Tables, records: Iterable[pa.RecordBatch], origin: Origin) -> Copied:
    """Add ``records`` to the output, within the connection's transaction."""
    return copy_in(connection, tables.named(f"COPY {{delivered}} ({', '.join(COLUMNS)}) FROM STDIN (FORMAT binary)"), records, origin)


def upsert(connection: Connection, tables: Tables, records: Iterable[pa.RecordBatch], origin: Origin) -> Copied:
    """Add ``records`` to the output, or put them in the place of those with the same identity, within the connection's transaction.

    Of several versions the one with the latest source offset stays. The rows are taken in the order of their identity, so that two
    transactions that upsert the same do not wait for each other in a circle.
    """
    connection.execute(tables.named("CREATE TEMPORARY TABLE staged (LIKE {delivered}) ON COMMIT DROP"))
    connection.execute("ALTER TABLE staged ALTER position DROP NOT NULL, ALTER written_at DROP NOT NULL")
    copied = copy_in(connection, sql.SQL(f"COPY staged ({', '.join(COLUMNS)}) FROM STDIN (FORMAT binary)").format(), records, origin)
    columns = ", ".join(COLUMNS)
    renewed = ", ".join(f"{column} = excluded.{column}" for column in (*COLUMNS, "written_at"))
    connection.execute(
        tables.named(
            f"""
            INSERT INTO {{delivered}} AS old (identity, {columns})
            SELECT DISTINCT ON (identity) * FROM (SELECT {IDENTITY} AS identity, {columns} FROM staged) AS new
            ORDER BY identity, source_offset DESC
            ON CONFLICT (identity) WHERE identity IS NOT NULL
            DO UPDATE SET {renewed} WHERE old.source_offset <= excluded.source_offset
            """
        )
    )
    return copied


class Copied:
    """What a task passed over: how many records, and from each source partition the first and last offset."""

    def __init__(self) -> None:
        self.records = 0
        self.ranges: dict[int, tuple[int, int]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        import numpy as np

        self.records += batch.num_rows
        partitions = batch.column("source_partition").to_numpy(zero_copy_only=False)
        offsets = batch.column("source_offset").to_numpy(zero_copy_only=False)
        for partition in np.unique(partitions).tolist():
            own_offsets = offsets[partitions == partition]
            first, last = self.ranges.get(partition, (int(own_offsets.min()), int(own_offsets.max())))
            self.ranges[partition] = (min(first, int(own_offsets.min())), max(last, int(own_offsets.max())))


def waiting(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch] | None:
    """The same batches, once one with a record has come; None when none does, and there is no reason to open a transaction."""
    first = next((batch for batch in batches if batch.num_rows), None)
    return None if first is None else itertools.chain([first], batches)


# --- ledger -----------------------------------------------------------------------------------------------------------------------


class LedgerMismatch(RuntimeError):
    """The ledger says that this part of a batch was written, but of other records than come now. To skip them would lose them."""


@dataclass(frozen=True)
class Entry:
    """What a transaction writes into the ledger. ``gid`` is its name where it is prepared, and empty where it is not."""

    batch: int
    attempt: int
    gid: str = ""


def enter(connection: Connection, tables: Tables, entry: Entry, copied: Copied) -> bool:
    """Write a row into the ledger for each source partition that was ``copied``, in the same transaction. False when one is there already.

    While another transaction is about to write the same row, this waits until that one ends, or for ``LOCK_TIMEOUT_MS``.
    """
    rows = sorted((partition, first, last) for partition, (first, last) in copied.ranges.items())
    statement = """
        INSERT INTO {ledger} (batch, partition, gid, attempt, first_offset, last_offset)
        SELECT %s, partition, %s, %s, first, last FROM unnest(%s::int[], %s::bigint[], %s::bigint[]) AS part (partition, first, last)
        ON CONFLICT DO NOTHING
    """
    columns = [list(column) for column in zip(*rows, strict=True)]
    return connection.execute(tables.named(statement), (entry.batch, entry.gid, entry.attempt, *columns)).rowcount == len(rows)


def entered(connection: Connection, tables: Tables, entry: Entry, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
    """What the ledger has of these source partitions: the first and last offset of each that it knows."""
    statement = "SELECT partition, first_offset, last_offset FROM {ledger} WHERE batch = %s AND gid = %s AND partition = ANY(%s)"
    rows = connection.execute(tables.named(statement), (entry.batch, entry.gid, list(partitions)))
    return {partition: (first, last) for partition, first, last in rows}


def check_same(entry: Entry, ranges: dict[int, tuple[int, int]], copied: Copied) -> None:
    """Raises LedgerMismatch unless the records that are skipped are those that the ledger speaks of."""
    if ranges != copied.ranges:
        raise LedgerMismatch(f"batch {entry.batch}: the ledger has {_in_words(ranges)}, the replay brings {_in_words(copied.ranges)}")


def _in_words(ranges: dict[int, tuple[int, int]]) -> str:
    parts = (f"partition {partition}: offsets {first} to {last}" for partition, (first, last) in sorted(ranges.items()))
    return ", ".join(parts) or "nothing of it"


# --- prepared transactions --------------------------------------------------------------------------------------------------------


def prepare(connection: Connection, gid: str) -> None:
    """End the connection's transaction by preparing it as ``gid``."""
    connection.execute(sql.SQL("PREPARE TRANSACTION {}").format(gid))
    connection.commit()


def prepared(connection: Connection, prefix: str) -> list[str]:
    """The gids that begin with ``prefix`` and are prepared now."""
    rows = connection.execute("SELECT gid FROM pg_prepared_xacts WHERE starts_with(gid, %s) ORDER BY prepared", [prefix])
    return [gid for (gid,) in rows]


def commit_prepared(connection: Connection, gid: str) -> bool:
    """Commit a prepared transaction; ``connection`` is in autocommit. False when no transaction of that name is prepared."""
    return _end(connection, sql.SQL("COMMIT PREPARED {}").format(gid))


def roll_back_prepared(connection: Connection, gid: str) -> bool:
    """Roll a prepared transaction back; ``connection`` is in autocommit. False when no transaction of that name is prepared."""
    return _end(connection, sql.SQL("ROLLBACK PREPARED {}").format(gid))


def _end(connection: Connection, statement: sql.Composed) -> bool:
    deadline = time.monotonic() + FINISH_S
    while True:
        try:
            connection.execute(statement)
            return True
        except errors.UndefinedObject:
            return False
        except errors.ObjectNotInPrerequisiteState:  # another session is at it
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


# --- who writes -------------------------------------------------------------------------------------------------------------------


def open_writers(connection: Connection, tables: Tables) -> dict[str, str | None]:
    """The transactions that are open, of whatever session and name, and may have written to the tables: what each holds is a lock that a
    writer takes and a reader does not. By virtual transaction; the value is the gid of one that is prepared."""
    rows = connection.execute(
        """
        SELECT DISTINCT locks.virtualtransaction, prepared.gid
        FROM pg_locks AS locks
        LEFT JOIN pg_locks AS own ON locks.pid IS NULL AND own.pid IS NULL AND own.locktype = 'transactionid'
            AND own.virtualtransaction = locks.virtualtransaction
        LEFT JOIN pg_prepared_xacts AS prepared ON prepared.transaction = own.transactionid
        WHERE locks.locktype = 'relation' AND locks.granted AND locks.pid IS DISTINCT FROM pg_backend_pid()
            AND locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND locks.mode NOT IN ('AccessShareLock', 'RowShareLock', 'ShareUpdateExclusiveLock')
            AND locks.relation IN (SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident(%s)))
        ORDER BY 1
        """,
        [tables.schema],
    )
    return dict(rows.fetchall())


def terminate(connection: Connection, tables: Tables) -> int:
    """End the sessions whose transactions write to the tables: these are rolled back. Returns how many."""
    sessions = [name for name, gid in open_writers(connection, tables).items() if gid is None]
    rows = connection.execute(
        """
        SELECT pg_terminate_backend(pid, %s)
        FROM (SELECT DISTINCT pid FROM pg_locks WHERE virtualtransaction = ANY(%s) AND pid IS NOT NULL) AS sessions
        """,
        (round(FINISH_S * 1000), sessions),
    )
    return len(rows.fetchall())


# --- decisions --------------------------------------------------------------------------------------------------------------------


def decide(connection: Connection, tables: Tables, batch: int, gids: list[str]) -> None:
    """Record durably that ``gids`` are committed. ``connection`` is in autocommit. Raises UniqueViolation when that was decided before."""
    connection.execute(tables.named("INSERT INTO {decisions} (batch, gids) VALUES (%s, %s)"), (batch, gids))


def decision(connection: Connection, tables: Tables, batch: int) -> list[str] | None:
    """What was decided for ``batch``, None when nothing was."""
    row = connection.execute(tables.named("SELECT gids FROM {decisions} WHERE batch = %s"), [batch]).fetchone()
    return None if row is None else list(row[0])


def finish(connection: Connection, tables: Tables, batch: int) -> None:
    """Note that all of the decision was carried out."""
    connection.execute(tables.named("UPDATE {decisions} SET finished_at = clock_timestamp() WHERE batch = %s"), [batch])


def unfinished(connection: Connection, tables: Tables) -> dict[int, list[str]]:
    """Decisions that may not have been carried out yet, by batch. None when the tables are not there (any more)."""
    try:
        rows = connection.execute(tables.named("SELECT batch, gids FROM {decisions} WHERE finished_at IS NULL ORDER BY batch"))
    except errors.UndefinedTable:
        return {}
    return {batch: list(gids) for batch, gids in rows}


def carry_out(connection: Connection, tables: Tables, gids: list[str]) -> None:
    """Commit what was decided; what is committed already stays so. Raises TransactionLost for what is neither prepared nor committed."""
    for gid in gids:
        if not commit_prepared(connection, gid) and not _committed(connection, tables, gid):
            raise TransactionLost(f"transaction {gid} was decided, but is neither prepared nor in the ledger: somebody rolled it back")


def _committed(connection: Connection, tables: Tables, gid: str) -> bool:
    return connection.execute(tables.named("SELECT 1 FROM {ledger} WHERE gid = %s"), [gid]).fetchone() is not None


def roll_back_undecided(connection: Connection, tables: Tables) -> int:
    """Roll back every prepared transaction of the query that no open decision names. Returns how many."""
    decided = {gid for gids in unfinished(connection, tables).values() for gid in gids}
    left = [gid for gid in prepared(connection, f"{tables.schema}:") if gid not in decided]
    return sum(roll_back_prepared(connection, gid) for gid in left)
