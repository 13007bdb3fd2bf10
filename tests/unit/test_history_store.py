"""The history remembers each run once, whoever writes at the same time, and a store of another version is brought up to date or refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from hypothesis import given
from hypothesis import strategies as st

from streamproof.evidence.folder import EvidenceError
from streamproof.evidence.journal import Restored
from streamproof.history import migrations
from streamproof.history.record import HistoryError, describe, read
from streamproof.history.store import HEAD, METADATA, VERSION_TABLE, Store, Wanted
from streamproof.verdict.decide import RunOutcome
from tests.support.histories import SPEC, Story, unjudged
from tests.support.remembered import BEGUN, RUN, night, write


def _url(path: Path) -> sa.URL:
    return sa.make_url(f"sqlite:///{path / 'history.sqlite'}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(_url(tmp_path)) as opened:
        yield opened


def test_what_is_recorded_comes_back_as_it_was(store: Store) -> None:
    broken = night(1, "E", anomalies={}, acked=None, delivered=None, recovery_s=None, records_per_s={}, expected=("LOST",))
    store.record(RUN, broken)
    assert store.runs() == [broken, RUN]
    assert (store.run(broken.run), store.run("nobody")) == (broken, None)


def test_a_run_that_is_recorded_again_is_one_row_with_what_was_said_last(store: Store) -> None:
    store.record(night(0, "P"), night(1, "P"))
    store.record(night(1, "A"))
    assert [(run.run, run.outcome) for run in store.runs()] == [("night-1", "ABORTED"), ("night-0", "PASSED")]


def test_two_runs_of_one_name_are_two_rows_and_the_newest_answers_to_it(store: Store) -> None:
    elsewhere = night(0, began_at=BEGUN + timedelta(milliseconds=1), folder="/elsewhere/night-0")
    store.record(elsewhere, night(0))
    assert store.runs() == [elsewhere, night(0)]
    assert store.run("night-0") == elsewhere
    store.forget(elsewhere)
    assert store.runs() == [night(0)]


def test_a_store_outlives_the_process_that_wrote_it(tmp_path: Path) -> None:
    for number in range(2):
        with Store(_url(tmp_path)) as store:
            store.record(night(number))
    with Store(_url(tmp_path)) as store:
        assert len(store.runs()) == 2


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (Wanted(), ["night-3", "night-2", "night-1", "night-0"]),
        (Wanted(limit=2), ["night-3", "night-2"]),
        (Wanted(strategy="checkpoint"), ["night-1"]),
        (Wanted(fault="cut_kafka"), ["night-2"]),
        (Wanted(fault="kill_executor", limit=2), ["night-3", "night-2"]),
        (Wanted(fault="kill"), []),
        (Wanted(outcome=RunOutcome.FAILED), ["night-3"]),
        (Wanted(since=BEGUN + timedelta(days=2)), ["night-3", "night-2"]),
        (Wanted(since=BEGUN + timedelta(days=2), outcome=RunOutcome.PASSED), ["night-2"]),
        (Wanted(cell=RUN.cell), ["night-3", "night-0"]),
    ],
)
def test_a_question_is_answered_with_the_runs_that_fit_the_newest_first(store: Store, wanted: Wanted, names: list[str]) -> None:
    store.record(
        night(0),
        night(1, strategy="checkpoint"),
        night(2, faults="cut_kafka + kill_executor(count=1)", fault_names=("cut_kafka", "kill_executor")),
        night(3, "F"),
    )
    assert [run.run for run in store.runs(wanted)] == names


def test_what_is_forgotten_is_gone_and_nothing_else(store: Store) -> None:
    store.record(night(0), night(1), night(2))
    store.forget(night(1), night(9))
    assert [run.run for run in store.runs()] == ["night-2", "night-0"]


def test_those_who_open_a_new_store_and_write_at_once_wait_for_each_other(tmp_path: Path) -> None:
    def one(number: int) -> None:
        with Store(_url(tmp_path)) as store:
            store.record(night(number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(16)))
    with Store(_url(tmp_path)) as store:
        assert len(store.runs()) == 16


def test_the_migrations_lead_to_the_tables_that_the_code_uses(store: Store, tmp_path: Path) -> None:
    with sa.create_engine(_url(tmp_path)).connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})
        assert compare_metadata(context, METADATA) == []
        assert sa.inspect(connection).get_table_names() == ["streamproof_runs", VERSION_TABLE]


def test_the_version_that_the_code_takes_as_current_is_the_newest_migration() -> None:
    assert migrations.versions()[0] == HEAD


def test_what_a_store_of_the_first_version_holds_is_kept(tmp_path: Path) -> None:
    with Store(_url(tmp_path)) as store:
        store.record(RUN)
    with sa.create_engine(_url(tmp_path)).begin() as connection:
        for column in ("windows", "windows_hit"):
            connection.execute(sa.text(f"ALTER TABLE streamproof_runs DROP COLUMN {column}"))
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '1'"))
    with Store(_url(tmp_path)) as store:
        assert store.runs() == [RUN]
        seen = replace(RUN, windows=("COMMIT > OffsetCommit",), windows_hit=("COMMIT > OffsetCommit",))
        store.record(seen)
        assert store.runs() == [seen]


def test_a_store_whose_version_is_not_told_yet_is_brought_up_to_date(store: Store, tmp_path: Path) -> None:
    with sa.create_engine(_url(tmp_path)).begin() as connection:
        connection.execute(sa.text(f"DELETE FROM {VERSION_TABLE}"))
        connection.execute(sa.text("DROP TABLE streamproof_runs"))
    with Store(_url(tmp_path)) as again:
        again.record(RUN)
        assert again.runs() == [RUN]


def test_a_store_that_a_newer_streamproof_wrote_is_refused_and_left_as_it_is(store: Store, tmp_path: Path) -> None:
    store.record(RUN)
    engine = sa.create_engine(_url(tmp_path))
    with engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '999'"))
    with pytest.raises(HistoryError, match=r"schema 999, which this streamproof does not know"), Store(_url(tmp_path)):
        pass
    with engine.begin() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM streamproof_runs")).scalar() == 1


def test_a_database_of_others_is_shared_without_touching_their_tables(tmp_path: Path) -> None:
    engine = sa.create_engine(_url(tmp_path))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num TEXT)"))
        connection.execute(sa.text("INSERT INTO alembic_version VALUES ('theirs')"))
    with Store(_url(tmp_path)) as store:
        store.record(RUN)
    with engine.begin() as connection:
        assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() == "theirs"


@pytest.mark.parametrize(
    "url", ["sqlite:////proc/nowhere/history.sqlite", "nosuch://host/name", "postgresql://user:secret@127.0.0.1:1/name"]
)
def test_a_store_that_cannot_be_opened_is_told_in_one_line_without_its_password(url: str) -> None:
    with pytest.raises(HistoryError) as told, Store(sa.make_url(url)):
        pass
    assert "secret" not in str(told.value)
    assert len(str(told.value).splitlines()) == 1
    assert "STREAMPROOF_HISTORY" in str(told.value)


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "history.sqlite").write_text("not a database, but long enough to be looked at as if it were one" * 20)
    with pytest.raises(HistoryError, match="not a database"), Store(_url(tmp_path)):
        pass


# --- a row from a run's folder ------------------------------------------------------------------------------------------------------


def test_a_row_holds_what_the_runs_folder_says(tmp_path: Path) -> None:
    folder = write(tmp_path, "one", workload={"records": 1000})
    verdict, row = folder.read_json(folder.verdict), read(folder)
    assert (row.run, row.folder, row.experiment) == ("one", str(folder.path), "experiment")
    assert (row.outcome, row.reason, row.anomalies) == (verdict["outcome"], verdict["reason"], verdict["anomalies"])
    assert (row.recovery_s, row.caught_up_s, row.output_s) == (verdict["recovery_s"], verdict["caught_up_s"], verdict["output_s"])
    assert row.recovery_s is not None
    assert (row.faults, row.fault_names) == ("kill_executor(count=1)", ("kill_executor",))
    assert (row.seed, row.began_at.isoformat(), row.duration_s) == (7, "2026-01-01T00:00:00+00:00", 13.0)
    assert row.settings["workload"]["records"] == 1000
    assert set(row.records_per_s) == {"steady", "impact", "recovery"}


def test_what_happens_to_a_run_after_it_gave_the_testbed_back_does_not_prolong_it(tmp_path: Path) -> None:
    folder = write(tmp_path, "one")
    folder.journal.append(Restored())
    before = read(folder)
    folder.journal.append(Restored())
    assert read(folder) == before


def test_a_run_that_was_stopped_has_a_row_with_what_is_known(tmp_path: Path) -> None:
    folder = write(tmp_path, "one")
    folder.verdict.write_text(json.dumps(unjudged(SPEC, RunOutcome.ABORTED, "stopped")))
    row = read(folder)
    assert (row.outcome, row.anomalies, row.acked, row.recovery_s, row.records_per_s) == ("ABORTED", {}, None, None, {})


def test_a_verdict_of_an_older_version_lacks_some_figures_and_has_a_row(tmp_path: Path) -> None:
    folder = write(tmp_path, "one")
    verdict = folder.read_json(folder.verdict)
    for name in ("caught_up_s", "output_s", "notes", "baseline"):
        del verdict[name]
    folder.verdict.write_text(json.dumps(verdict))
    assert (read(folder).caught_up_s, read(folder).output_s) == (None, None)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("verdict.json", "{"),
        ("verdict.json", "[]"),
        ("verdict.json", '{"outcome": "SPLENDID"}'),
        ("schedule.json", "{}"),
        ("experiment.yaml", "a: ["),
        ("experiment.yaml", "- a"),
        ("journal.jsonl", ""),
        ("journal.jsonl", '{"at": "yesterday", "event": "x"}\n'),
    ],
)
def test_a_damaged_run_has_no_row_and_the_file_is_named(tmp_path: Path, file: str, content: str) -> None:
    folder = write(tmp_path, "one")
    (folder.path / file).write_text(content)
    with pytest.raises(EvidenceError, match=r"one"):
        read(folder)


def test_faults_that_the_seed_draws_are_one_cell_whatever_the_seed(tmp_path: Path) -> None:
    rows = [read(write(tmp_path, f"seed-{seed}", faults=[], random={"count": 3}, seed=seed)) for seed in (1, 2)]
    assert rows[0].fault_names != rows[1].fault_names
    assert rows[0].cell == rows[1].cell
    assert rows[0].faults.startswith("random(count=3")


def test_what_another_guarantee_asks_of_the_same_job_is_another_cell(tmp_path: Path) -> None:
    asked = read(write(tmp_path, "asked", strategy="offset_commit", guarantee="exactly-once"))
    assert asked.cell != read(write(tmp_path, "own", strategy="offset_commit")).cell


@pytest.mark.parametrize(
    ("injections", "said"),
    [
        ([], "none"),
        ([{"fault": "kill_executor", "parameters": {}}], "kill_executor"),
        ([{"fault": "a", "parameters": {"y": 2, "x": None, "b": "text"}}], "a(b=text, y=2)"),
        ([{"fault": "a", "parameters": {}, "step": "after_output"}], "a(as the job reaches after_output)"),
        ([{"fault": "a", "parameters": {}, "phase": "recovery"}], "a(in recovery)"),
        ([{"fault": "a", "parameters": {}}, {"fault": "b", "parameters": {}, "overlaps": True}], "a + b(while the one before lasts)"),
    ],
)
def test_a_plan_is_described_by_its_faults_and_what_was_chosen(injections: list[dict[str, Any]], said: str) -> None:
    assert describe(injections) == said


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers() | st.text(max_size=5)), st.randoms(), st.floats(0, 1))
def test_neither_the_order_of_parameters_nor_when_a_fault_is_injected_makes_another_plan(
    parameters: dict[str, Any], random: Any, at: float
) -> None:
    shuffled = list(parameters.items())
    random.shuffle(shuffled)
    assert describe([{"fault": "x", "parameters": parameters}]) == describe([{"fault": "x", "parameters": dict(shuffled), "at": at}])


def test_a_story_without_faults_is_the_cell_of_none(tmp_path: Path) -> None:
    row = read(write(tmp_path, "one", faults=[], story=Story()))
    assert (row.faults, row.fault_names) == ("none", ())
