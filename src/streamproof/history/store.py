"""The store of the history of runs: one table in any database that SQLAlchemy speaks, SQLite when nobody says otherwise.

The schema has a version, and alembic migrations in ``history_migrations`` lead from one to the next: whoever opens a store of an older
version brings it up to date. Its tables are named ``streamproof_...``, the one of alembic too, so that the store may share a database.
A run is one row, by its name and when it began: to record it again replaces the row, and machines that share a store may give a name twice.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from streamproof.history.record import Cell, HistoryError, Run
from streamproof.verdict.decide import RunOutcome

HEAD = "2"
VERSION_TABLE = "streamproof_schema"
ADVISORY = 0x73747265616D  # "stream"
BUSY_S = 20
METADATA = sa.MetaData()


class Moment(sa.TypeDecorator[datetime]):
    """A moment with its time zone, in UTC; SQLite would forget the zone."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


RUNS = sa.Table(
    "streamproof_runs",
    METADATA,
    sa.Column("run", sa.String(255), primary_key=True),
    sa.Column("folder", sa.Text, nullable=False),
    sa.Column("experiment", sa.String(60), nullable=False),
    sa.Column("began_at", Moment, primary_key=True, index=True),
    sa.Column("duration_s", sa.Float, nullable=False),
    sa.Column("pipeline", sa.String(255), nullable=False),
    sa.Column("strategy", sa.String(255), nullable=False),
    sa.Column("guarantee", sa.String(60), nullable=False),
    sa.Column("faults", sa.Text, nullable=False),
    sa.Column("fault_names", sa.JSON, nullable=False),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("settings", sa.JSON, nullable=False),
    sa.Column("versions", sa.JSON, nullable=False),
    sa.Column("outcome", sa.String(20), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("anomalies", sa.JSON, nullable=False),
    sa.Column("expected", sa.JSON, nullable=False),
    sa.Column("acked", sa.BigInteger),
    sa.Column("delivered", sa.BigInteger),
    sa.Column("recovery_s", sa.Float),
    sa.Column("caught_up_s", sa.Float),
    sa.Column("longest_gap_s", sa.Float),
    sa.Column("output_s", sa.Float),
    sa.Column("records_per_s", sa.JSON, nullable=False),
    sa.Column("driver_starts", sa.Integer),
    sa.Column("batches", sa.Integer),
    sa.Column("stage_seconds", sa.JSON, nullable=False),
    sa.Column("windows", sa.JSON),
    sa.Column("windows_hit", sa.JSON),
)
NAMES = tuple(column.name for column in RUNS.columns)


@dataclass(frozen=True)
class Wanted:
    """Which runs are asked for: those that fit everything that is given. ``fault`` was injected, perhaps with others."""

    strategy: str | None = None
    fault: str | None = None
    outcome: RunOutcome | None = None
    since: datetime | None = None
    cell: Cell | None = None
    limit: int | None = None


class Store:
    """The history at ``url``. Everything it does raises HistoryError when the database does not play along."""

    def __init__(self, url: sa.URL) -> None:
        self.name = url.render_as_string(hide_password=True)
        with self._explained("opened"):
            self._engine = _engine(url)

    def __enter__(self) -> Self:
        with self._explained("brought up to date"):
            self._migrate()
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.dispose()

    def record(self, *runs: Run) -> None:
        """Remember runs; one that is known already is replaced."""
        with self._explained("written"), self._writing() as connection:
            for run in runs:
                connection.execute(_delete(run))
                connection.execute(RUNS.insert(), _row(run))

    def runs(self, wanted: Wanted = Wanted()) -> list[Run]:
        """The runs that fit, the newest first."""
        query = sa.select(RUNS).order_by(RUNS.c.began_at.desc(), RUNS.c.run.desc())
        for name in ("strategy", "outcome"):
            if getattr(wanted, name) is not None:
                query = query.where(RUNS.c[name] == str(getattr(wanted, name)))
        if wanted.since is not None:
            query = query.where(RUNS.c.began_at >= wanted.since)
        if wanted.cell is not None:
            query = query.where(*(RUNS.c[field.name] == getattr(wanted.cell, field.name) for field in fields(Cell)))
        if wanted.fault is None:
            query = query.limit(wanted.limit)
        with self._explained("read"), self._engine.connect() as connection:
            runs = [_run(row) for row in connection.execute(query)]
        # Databases do not agree on how to look into JSON, so this one is asked here.
        return [run for run in runs if wanted.fault is None or wanted.fault in run.fault_names][: wanted.limit]

    def run(self, name: str) -> Run | None:
        """The newest run of that name."""
        query = sa.select(RUNS).where(RUNS.c.run == name).order_by(RUNS.c.began_at.desc())
        with self._explained("read"), self._engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else _run(row)

    def names(self) -> tuple[set[str], set[str]]:
        """The strategies and the faults of all runs."""
        with self._explained("read"), self._engine.connect() as connection:
            rows = connection.execute(sa.select(RUNS.c.strategy, RUNS.c.fault_names)).all()
        return {strategy for strategy, _ in rows}, {name for _, names in rows for name in names}

    def forget(self, *runs: Run) -> None:
        with self._explained("written"), self._writing() as connection:
            for run in runs:
                connection.execute(_delete(run))

    def _migrate(self) -> None:
        with self._writing() as connection:
            version = sa.Table(VERSION_TABLE, sa.MetaData(), sa.Column("version_num", sa.String(32)))
            current = connection.scalar(sa.select(version.c.version_num)) if sa.inspect(connection).has_table(VERSION_TABLE) else None
            if current == HEAD:
                return
            from streamproof.history import migrations  # alembic takes longer to import than all else here, and is seldom needed

            if current is not None and current not in migrations.versions():
                raise HistoryError(
                    f"the history {self.name} has schema {current}, which this streamproof does not know: a newer one wrote it; "
                    "use that one, or name another store in STREAMPROOF_HISTORY"
                )
            migrations.migrate(connection)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """A transaction that nobody else's writing or migrating crosses; SQLite has no other."""
        with self._engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY)))
            yield connection

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sa.exc.SQLAlchemyError, OSError, ImportError) as error:
            cause = getattr(error, "orig", None) or error
            raise HistoryError(
                f"the history {self.name} cannot be {what}: {' '.join(str(cause).split())}; see STREAMPROOF_HISTORY"
            ) from error


def _engine(url: sa.URL) -> sa.Engine:
    if url.get_backend_name() != "sqlite":
        return sa.create_engine(url, poolclass=sa.pool.NullPool, json_deserializer=_known)
    if url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_S}, json_deserializer=_known)
    # Whoever writes, or migrates, waits for another to end: the driver of itself would begin only at the first row, and then not wait.
    sa.event.listen(engine, "connect", lambda connection, record: setattr(connection, "isolation_level", None))
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _delete(run: Run) -> sa.Delete:
    return RUNS.delete().where(RUNS.c.run == run.run, RUNS.c.began_at == run.began_at)


def _row(run: Run) -> dict[str, Any]:
    return {field.name: getattr(run, field.name) for field in fields(Run)} | {
        "outcome": str(run.outcome),
        "fault_names": list(run.fault_names),
        "expected": list(run.expected),
        "windows": list(run.windows),
        "windows_hit": list(run.windows_hit),
    }


def _run(row: sa.Row[Any]) -> Run:
    read = dict(zip(NAMES, row, strict=True))
    read["outcome"] = RunOutcome(read["outcome"])
    for name in ("fault_names", "expected", "windows", "windows_hit"):
        read[name] = tuple(read[name] or ())
    return Run(**read)


@functools.lru_cache(maxsize=8192)
def _known(text: str) -> Any:
    """What a column of JSON holds. The runs of a cell have most of it in common, so it is read once, and nobody may change it."""
    return json.loads(text)
