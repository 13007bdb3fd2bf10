"""The history in a PostgreSQL that several machines share: the same rows as in SQLite, whoever comes first, and who writes at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from streamproof.history.record import HistoryError
from streamproof.history.store import METADATA, VERSION_TABLE, Store, Wanted
from streamproof.testbed.embedded import Testbed
from tests.support.remembered import RUN, night, nights


@pytest.fixture
def url(testbed: Testbed) -> Iterator[sa.URL]:
    """A database of the testbed's server, without the history's tables."""
    told = psycopg.conninfo.conninfo_to_dict(testbed.direct_postgres)
    found = sa.URL.create(
        "postgresql",
        host=str(told["host"]),
        port=int(told["port"] or 0),
        username=str(told["user"]),
        database=str(told["dbname"]),
        query={"passfile": str(told["passfile"])},
    )
    yield found
    with sa.create_engine(found).begin() as connection:
        connection.execute(sa.text(f"DROP TABLE IF EXISTS streamproof_runs, {VERSION_TABLE}"))


def test_what_is_recorded_comes_back_as_it_was(url: sa.URL) -> None:
    broken = night(1, "E", anomalies={}, acked=None, delivered=None, recovery_s=None, records_per_s={}, expected=("LOST",))
    with Store(url) as store:
        store.record(RUN, broken)
        store.record(replace(RUN, reason="said again"))
    with Store(url) as store:
        assert store.runs() == [broken, replace(RUN, reason="said again")]
        assert store.runs(Wanted(since=broken.began_at, fault="kill_executor", limit=1)) == [broken]
        store.forget(RUN)
        assert store.runs() == [broken]


def test_those_who_come_first_at_once_wait_for_each_other(url: sa.URL) -> None:
    def one(number: int) -> None:
        with Store(url) as store:
            store.record(night(number % 4))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(12)))
    with Store(url) as store:
        assert [run.run for run in store.runs()] == ["night-3", "night-2", "night-1", "night-0"]


def test_the_migrations_lead_to_the_tables_that_the_code_uses(url: sa.URL) -> None:
    with Store(url) as store:
        store.record(*nights("PF"))
    only = {"streamproof_runs", VERSION_TABLE}
    options = {"version_table": VERSION_TABLE, "compare_type": True, "include_name": lambda name, kind, _: kind != "table" or name in only}
    with sa.create_engine(url).connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts=options), METADATA) == []


def test_a_wrong_password_is_told_in_one_line(url: sa.URL) -> None:
    wrong = url.set(password="wrong-secret", query={})
    with pytest.raises(HistoryError) as told, Store(wrong):
        pass
    assert "password authentication failed" in str(told.value)
    assert "wrong-secret" not in str(told.value)
    assert len(str(told.value).splitlines()) == 1
