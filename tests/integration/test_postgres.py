"""PostgreSQL as a component and as an output, against the real server: its strategies keep their promises at each step."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamproof.engines.spark.failpoints import FailpointError, arm
from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.engines.spark.strategies.postgres_ledger_sink import Commit
from streamproof.engines.spark.strategies.postgres_two_phase_commit import PostgresTwoPhaseCommit
from streamproof.engines.spark.strategies.postgres_two_phase_commit_sink import Deliver, Prepare
from streamproof.engines.spark.task import Task
from streamproof.evidence import histories, identity
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import Restored
from streamproof.jobs.failpoint import Action
from streamproof.kafka.transactions import TransactionLost
from streamproof.run import healing
from streamproof.sinks.postgres import tables as output
from streamproof.sinks.postgres.drain import PostgresTable
from streamproof.sinks.postgres.tables import Connection, Copied, Entry, LedgerMismatch, Origin, Tables
from streamproof.testbed import embedded, postgres
from streamproof.testbed.embedded import POSTGRES_PROXY, Testbed
from streamproof.testbed.process import TestbedError, marked, remembered
from tests.support.jobs import spark_job

RECORDS = 10
ORIGIN = Origin(start=1, batch=7, attempt=2)


def records(count: int = RECORDS, partition: int = 0, first: int = 0) -> pa.RecordBatch:
    """Records as a task gets them."""
    numbers = range(first, first + count)
    return batch_of(
        [b"key-%d" % number for number in numbers],
        [identity.encode(partition, number, b'{"n":%d}' % number, b"key-%d" % number) for number in numbers],
        [partition] * count,
        list(numbers),
    )


def batch_of(keys: list[bytes | None], values: list[bytes | None], partitions: list[int], offsets: list[int]) -> pa.RecordBatch:
    columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64())]
    return pa.record_batch(columns, names=["key", "value", "source_partition", "source_offset"])


@pytest.fixture
def job(testbed: Testbed, tmp_path: Path) -> Iterator[SparkJob]:
    """A job with an empty output in PostgreSQL, deleted afterwards."""
    found = spark_job(
        RunFolder.create(tmp_path / "run"),
        "postgres_two_phase_commit",
        name=f"test-{uuid.uuid4().hex[:8]}",
        bootstrap=testbed.driver_kafka,
        batch_records=100,
        transaction_timeout_ms=60_000,
        master=testbed.spark_master,
        postgres=testbed.pipeline_postgres,
        start=1,
    )
    PostgresTable().create(found, testbed, 2)
    yield found
    PostgresTable().delete(found, embedded.current())


@pytest.fixture
def tables(job: SparkJob) -> Tables:
    return Tables(job.name)


@pytest.fixture
def connection(job: SparkJob) -> Iterator[Connection]:
    with closing(output.connect(job.postgres)) as found:
        yield found


@pytest.fixture
def judge(testbed: Testbed, job: SparkJob) -> Iterator[Connection]:
    """A connection beside the proxy that sees what is committed."""
    with closing(output.connect(testbed.direct_postgres, autocommit=True)) as found:
        yield found


def visible(judge: Connection, tables: Tables) -> list[tuple[int, int]]:
    """Source partition and offset of each delivered row."""
    query = "SELECT source_partition, source_offset FROM {delivered} ORDER BY source_partition, source_offset"
    return [(partition, offset) for partition, offset in judge.execute(tables.named(query))]


EACH_ONCE = [(partition, offset) for partition in range(2) for offset in range(RECORDS)]


# --- the component ----------------------------------------------------------------------------------------------------------------


def test_nothing_that_makes_a_commit_durable_is_off_and_two_phase_commit_is_on(judge: Connection) -> None:
    said = {name: judge.execute(f"SHOW {name}").fetchone()[0] for name in ("fsync", "synchronous_commit", "full_page_writes")}  # type: ignore[index]
    assert said == {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
    assert int(judge.execute("SHOW max_prepared_transactions").fetchone()[0]) >= 64  # type: ignore[index]


def test_the_password_is_in_one_file_that_only_its_owner_reads(testbed: Testbed) -> None:
    folder = embedded.folder()
    passfile = postgres.passfile(folder)
    assert stat.S_IMODE(passfile.stat().st_mode) == 0o600
    password = passfile.read_text().strip().split(":")[-1]
    assert len(password) >= 32
    assert password not in testbed.direct_postgres
    holders = [path for path in _files(folder) if password.encode() in _content(path)]
    assert holders == [passfile]


def _files(folder: Path) -> list[Path]:
    """Every file below; what the servers delete meanwhile is passed over."""
    return [path for parent, _, names in os.walk(folder) for name in names if (path := Path(parent, name)).is_file()]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def test_nobody_comes_in_without_the_password(testbed: Testbed, tmp_path: Path) -> None:
    for line in ("", "127.0.0.1:*:*:streamproof:guessed\n"):
        wrong = tmp_path / f"pass-{len(line)}"
        wrong.write_text(line)
        wrong.chmod(0o600)
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(testbed.direct_postgres, passfile=str(wrong))


def test_the_pipeline_comes_through_the_proxy_and_the_judge_beside_it(testbed: Testbed) -> None:
    testbed.proxies.add(POSTGRES_PROXY, "cut", "reset_peer", "downstream", {"timeout": 0})
    try:
        with pytest.raises(psycopg.OperationalError):
            output.connect(testbed.pipeline_postgres)
        output.connect(testbed.direct_postgres).close()
    finally:
        testbed.proxies.reset(POSTGRES_PROXY)
    output.connect(testbed.pipeline_postgres).close()


def test_a_proxy_of_postgres_that_is_down_is_told(testbed: Testbed) -> None:
    testbed.proxies._proxy(POSTGRES_PROXY).disable()
    try:
        assert embedded.status()["toxiproxy"] == "its proxy of postgres is down"
    finally:
        testbed.proxies.reset(POSTGRES_PROXY)
    assert embedded.status()["toxiproxy"] == "up"


def test_the_backends_are_processes_of_the_testbed(testbed: Testbed, judge: Connection) -> None:
    pid = judge.info.backend_pid
    assert pid in {process.pid for process in marked()}
    assert pid not in {process.pid for process in marked(STREAMPROOF_RUN="any")}


def test_what_was_committed_or_prepared_outlives_a_killed_server(
    testbed: Testbed, job: SparkJob, tables: Tables, connection: Connection
) -> None:
    output.append(connection, tables, [records()], ORIGIN)
    connection.commit()
    output.append(connection, tables, [records(partition=1)], ORIGIN)
    gid = f"{tables.schema}:outlives"
    output.prepare(connection, gid)
    output.append(connection, tables, [records(partition=2)], ORIGIN)
    server = remembered(postgres.ROLE, embedded.folder())
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(TestbedError, match="postgres not up"):
        embedded.current()
    assert embedded.up() == testbed
    with closing(output.connect(testbed.direct_postgres, autocommit=True)) as again:
        assert visible(again, tables) == EACH_ONCE[:RECORDS]
        assert output.prepared(again, gid) == [gid]
        assert output.commit_prepared(again, gid)
        assert visible(again, tables) == EACH_ONCE


def test_a_testbed_of_another_version_is_an_error_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    (tmp_path / "testbed").mkdir()
    (tmp_path / "testbed" / "state.json").write_text(json.dumps({"folder": "f", "kafka": {}, "toxiproxy_port": 1, "spark": {}}))
    with pytest.raises(TestbedError, match=r"another version.*`streamproof down`, then start anew"):
        embedded.current()


# --- rows -------------------------------------------------------------------------------------------------------------------------

BYTES = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
ROWS = st.lists(st.tuples(BYTES, BYTES, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, cut=st.integers(0, 30))
def test_a_binary_copy_writes_each_row_as_it_was(
    connection: Connection, tables: Tables, rows: list[tuple[Any, Any, int, int]], cut: int
) -> None:
    whole = batch_of(*([row[column] for row in rows] for column in range(4)))  # type: ignore[arg-type]
    output.append(connection, tables, [whole.slice(0, cut), whole.slice(cut)], ORIGIN)
    query = "SELECT key, value, source_partition, source_offset, start, batch, attempt FROM {delivered} ORDER BY position"
    found = connection.execute(tables.named(query)).fetchall()
    connection.rollback()
    assert found == [(*row, ORIGIN.start, ORIGIN.batch, ORIGIN.attempt) for row in rows]


def test_a_value_of_many_megabytes_goes_in_and_comes_out(connection: Connection, tables: Tables) -> None:
    large = os.urandom(30_000_000)
    output.append(connection, tables, [batch_of([b"k"], [large], [0], [0])], ORIGIN)
    assert connection.execute(tables.named("SELECT value FROM {delivered}"), binary=True).fetchone() == (large,)


def test_a_name_that_is_too_long_for_a_schema_keeps_its_own() -> None:
    long, other = Tables("sp-" + "x" * 80), Tables("sp-" + "x" * 81)
    assert len(long.schema.encode()) <= output.NAME_BYTES
    assert long.schema != other.schema
    assert Tables("sp-short").schema == "sp-short"


# --- postgres_ledger --------------------------------------------------------------------------------------------------------------


def deliver(job: SparkJob, task: Task, *batches: pa.RecordBatch) -> None:
    with closing(output.connect(job.postgres)) as connection:
        Commit(job, task.batch).deliver(connection, iter(batches), task)


def test_a_part_that_is_in_the_ledger_is_not_written_again(job: SparkJob, tables: Tables, judge: Connection) -> None:
    for attempt in range(3):
        for partition in range(2):
            deliver(job, Task(0, partition, attempt, attempt), records(partition=partition))
    assert visible(judge, tables) == EACH_ONCE
    deliver(job, Task(1, 0, 0, 9), records(first=RECORDS))
    assert len(visible(judge, tables)) == 3 * RECORDS


def test_a_replay_with_other_records_is_refused_not_skipped(job: SparkJob, tables: Tables, judge: Connection) -> None:
    deliver(job, Task(4, 0, 0, 0), records())
    with pytest.raises(
        LedgerMismatch, match=r"batch 4: the ledger has partition 0: offsets 0 to 9, the replay brings partition 0: offsets 0 to 19"
    ):
        deliver(job, Task(4, 0, 1, 1), records(), records(first=RECORDS))
    assert visible(judge, tables) == EACH_ONCE[:RECORDS]


def test_a_replay_that_numbers_its_partitions_differently_is_skipped_all_the_same(job: SparkJob, tables: Tables, judge: Connection) -> None:
    for number, partition in ((0, 0), (1, 1)):
        deliver(job, Task(0, number, 0, number), records(partition=partition))
    for number, partition in ((0, 1), (1, 0)):
        deliver(job, Task(0, number, 0, number), records(partition=partition))
    deliver(job, Task(0, 0, 0, 0), records(partition=1), records(partition=0))
    assert visible(judge, tables) == EACH_ONCE


def test_a_part_of_which_only_some_is_in_the_ledger_is_refused(job: SparkJob, tables: Tables, judge: Connection) -> None:
    deliver(job, Task(0, 0, 0, 0), records(partition=1))
    with pytest.raises(
        LedgerMismatch, match=r"batch 0: the ledger has partition 1: .*, the replay brings partition 0: .*, partition 1: .*"
    ):
        deliver(job, Task(0, 0, 0, 1), records(partition=0), records(partition=1))
    assert visible(judge, tables) == EACH_ONCE[RECORDS:]


def test_a_crash_before_the_commit_leaves_neither_records_nor_ledger(job: SparkJob, tables: Tables, judge: Connection) -> None:
    arm(job.run, "before_task_commit", Action.RAISE)
    with pytest.raises(FailpointError):
        deliver(job, Task(0, 0, 0, 0), records())
    assert visible(judge, tables) == []
    deliver(job, Task(0, 0, 1, 1), records())
    assert visible(judge, tables) == EACH_ONCE[:RECORDS]


def test_of_two_attempts_at_once_the_second_waits_and_writes_nothing(
    job: SparkJob, tables: Tables, connection: Connection, judge: Connection
) -> None:
    copied = output.append(connection, tables, [records()], ORIGIN)
    assert output.enter(connection, tables, Entry(0, 0), copied)
    second = threading.Thread(target=deliver, args=(job, Task(0, 0, 1, 1), records()))
    second.start()
    _wait_for_a_lock(judge)
    assert second.is_alive()
    connection.commit()
    second.join(10)
    assert visible(judge, tables) == EACH_ONCE[:RECORDS]


def _wait_for_a_lock(judge: Connection) -> None:
    deadline = time.monotonic() + 10
    while judge.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone() == (0,):
        assert time.monotonic() < deadline, "nobody waits for a lock"
        time.sleep(0.01)


# --- postgres_upsert --------------------------------------------------------------------------------------------------------------


def test_to_upsert_again_changes_nothing_but_who_wrote_it(connection: Connection, tables: Tables, judge: Connection) -> None:
    for attempt in range(3):
        output.upsert(connection, tables, [records(), records(partition=1)], Origin(1, 0, attempt))
        connection.commit()
    assert visible(judge, tables) == EACH_ONCE
    assert judge.execute(tables.named("SELECT DISTINCT attempt FROM {delivered}")).fetchall() == [(2,)]


def test_of_several_versions_of_a_record_the_latest_stays(connection: Connection, tables: Tables, judge: Connection) -> None:
    versions = [identity.encode(0, 5, b'{"version":%d}' % number) for number in range(3)]
    output.upsert(connection, tables, [batch_of([b"k"] * 2, [versions[1], versions[2]], [0, 0], [11, 12])], ORIGIN)
    connection.commit()
    output.upsert(connection, tables, [batch_of([b"k"], [versions[0]], [0], [10])], ORIGIN)
    connection.commit()
    assert judge.execute(tables.named("SELECT value FROM {delivered}")).fetchall() == [(versions[2],)]


def test_a_record_without_an_identity_is_kept_under_its_place_in_the_source(
    connection: Connection, tables: Tables, judge: Connection
) -> None:
    whole = identity.encode(1, 2, b'{"n":2}')
    damaged = [None, b"", b"\xff\x00not ours", whole[:20], whole.replace(b"0001-", b"0001_"), whole.replace(b"0001-", b"00g1-"), whole]
    odd = batch_of([b"k"] * len(damaged), damaged, [0] * len(damaged), list(range(len(damaged))))
    for _ in range(2):
        output.upsert(connection, tables, [odd], ORIGIN)
        connection.commit()
    found = judge.execute(tables.named("SELECT identity, value FROM {delivered} ORDER BY source_offset")).fetchall()
    names = [*(f"0:{number}" for number in range(len(damaged) - 1)), "0001-000000000002"]
    assert found == list(zip(names, damaged, strict=True))


# --- postgres_two_phase_commit ----------------------------------------------------------------------------------------------------


def prepare(job: SparkJob, task: Task, *batches: pa.RecordBatch) -> str | None:
    with closing(output.connect(job.postgres)) as connection:
        return Prepare(job, task.batch).prepare(connection, iter(batches), task)


def both(job: SparkJob, batch: int = 0, attempt: int = 0) -> list[str]:
    """What Spark does with a batch up to the driver's commit: one task for each of two partitions."""
    gids = [prepare(job, Task(batch, partition, attempt, attempt), records(partition=partition)) for partition in range(2)]
    return [gid for gid in gids if gid is not None]


def restarted(job: SparkJob) -> SparkJob:
    return replace(job, start=job.start + 1)


def test_what_is_prepared_is_seen_by_nobody_until_the_driver_commits(job: SparkJob, tables: Tables, judge: Connection) -> None:
    gids = both(job)
    assert visible(judge, tables) == []
    Deliver(job).commit(gids, 0)
    assert visible(judge, tables) == EACH_ONCE
    assert output.prepared(judge, f"{tables.schema}:") == []
    assert output.unfinished(judge, tables) == {}


@pytest.mark.parametrize("failpoint", [at.name for at in PostgresTwoPhaseCommit.failpoints if at.at == "driver"])
def test_a_driver_that_dies_at_any_step_delivers_each_record_once(
    failpoint: str, job: SparkJob, tables: Tables, judge: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    gids = both(job)
    arm(job.run, failpoint, Action.RAISE)
    with pytest.raises(FailpointError):
        Deliver(job).commit(gids, 0)
    again = restarted(job)
    PostgresTwoPhaseCommit().recover(again)
    assert output.prepared(judge, f"{tables.schema}:") == []
    assert visible(judge, tables) == ([] if failpoint == "before_decision" else EACH_ONCE)
    Deliver(again).commit(both(again), 0)
    assert visible(judge, tables) == EACH_ONCE
    assert PostgresTwoPhaseCommit().recover(again) == {}


def test_recovery_says_what_it_did(job: SparkJob, tables: Tables) -> None:
    gids = both(job)
    lost = prepare(job, Task(0, 0, 1, 5), records())
    assert lost is not None
    arm(job.run, "between_commits", Action.RAISE)
    with pytest.raises(FailpointError):
        Deliver(job).commit(gids, 0)
    assert PostgresTwoPhaseCommit().recover(job) == {"finished_batches": [0], "rolled_back": 1}
    assert PostgresTwoPhaseCommit().recover(job) == {}


def test_a_retry_is_not_held_up_by_the_prepared_transaction_of_a_lost_attempt(job: SparkJob, tables: Tables, judge: Connection) -> None:
    prepare(job, Task(0, 0, 0, 0), records())
    begun = time.monotonic()
    gid = prepare(job, Task(0, 0, 1, 1), records())
    assert time.monotonic() - begun < output.LOCK_TIMEOUT_MS / 2000
    Deliver(job).commit([str(gid)], 0)
    assert visible(judge, tables) == EACH_ONCE[:RECORDS]
    assert output.prepared(judge, f"{tables.schema}:") == []


def test_an_abort_does_not_undo_what_was_decided(job: SparkJob, tables: Tables, judge: Connection) -> None:
    gids = both(job)
    arm(job.run, "after_decision", Action.RAISE)
    writer = Deliver(job)
    with pytest.raises(FailpointError):
        writer.commit(gids, 0)
    writer.abort()
    writer.commit([], 0)
    assert visible(judge, tables) == EACH_ONCE


def test_a_second_commit_of_a_prepared_transaction_is_told_from_a_lost_one_by_the_ledger(
    job: SparkJob, tables: Tables, judge: Connection
) -> None:
    gid = prepare(job, Task(3, 0, 0, 0), records())
    assert gid is not None
    assert output.commit_prepared(judge, gid)
    assert not output.commit_prepared(judge, gid)
    output.carry_out(judge, tables, [gid])
    with pytest.raises(TransactionLost, match="transaction never-there was decided"):
        output.carry_out(judge, tables, ["never-there"])


def test_a_decided_transaction_that_somebody_rolled_back_is_lost_aloud(job: SparkJob, tables: Tables, judge: Connection) -> None:
    gids = both(job, batch=5)
    arm(job.run, "after_decision", Action.RAISE)
    with pytest.raises(FailpointError):
        Deliver(job).commit(gids, 5)
    assert output.roll_back_prepared(judge, gids[1])
    with pytest.raises(TransactionLost, match=r"batch 5 \(.*\): transaction .* was decided, but is neither prepared nor in the ledger"):
        PostgresTwoPhaseCommit().recover(job)


def test_a_transaction_that_is_gone_before_the_decision_fails_the_batch(job: SparkJob, tables: Tables, judge: Connection) -> None:
    gids = both(job)
    output.roll_back_prepared(judge, gids[0])
    with pytest.raises(TransactionLost, match=r"batch 0: .* not prepared any more"):
        Deliver(job).commit(gids, 0)
    assert output.decision(judge, tables, 0) is None


# --- the output -------------------------------------------------------------------------------------------------------------------


def test_the_drain_finds_each_row_with_its_origin_and_the_time_of_its_commit(testbed: Testbed, job: SparkJob, judge: Connection) -> None:
    gid = prepare(job, Task(2, 0, 1, 1), records(), batch_of([None], [b"damaged"], [0], [99]))
    time.sleep(0.3)
    decided_ms = time.time() * 1000
    Deliver(job).commit([str(gid)], 2)
    found = PostgresTable().drain(job.run, job, testbed, 30)
    assert (found["complete"], found["records"]) == (True, RECORDS + 1)
    rows = histories.read_delivered(job.run)
    assert rows.identified.tolist() == [True] * RECORDS + [False]
    assert (rows.crc >= 0).tolist() == [True] * RECORDS + [False]
    assert rows.sequence[:RECORDS].tolist() == list(range(RECORDS))
    assert rows.offset.tolist() == sorted(rows.offset.tolist())
    assert {(int(s), int(b), int(a)) for s, b, a in zip(rows.start, rows.batch, rows.attempt, strict=True)} == {(1, 2, 1)}
    stamps = pq.read_table(job.run.delivered / "00000.parquet")["delivered_at"].to_pylist()
    assert all(abs(stamp.timestamp() * 1000 - decided_ms) < 250 for stamp in stamps)


def test_a_drain_is_not_complete_while_a_transaction_is_prepared(testbed: Testbed, job: SparkJob, monkeypatch: pytest.MonkeyPatch) -> None:
    gids = both(job)
    found = PostgresTable().drain(job.run, job, testbed, 0.3)
    assert (found["complete"], found["records"]) == (False, 0)
    assert "2 prepared transactions are open" in found["reason"]
    Deliver(job).commit(gids, 0)
    found = PostgresTable().drain(job.run, job, testbed, 30)
    assert (found["complete"], found["reason"], found["records"]) == (True, None, 2 * RECORDS)


def test_a_drain_of_several_files_holds_every_row_once(
    testbed: Testbed, job: SparkJob, tables: Tables, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("postgres.drain.READ_RECORDS", "delivered.GROUP_RECORDS", "delivered.FILE_RECORDS"):
        monkeypatch.setattr(f"streamproof.sinks.{name}", 400)
    output.append(connection, tables, [records(1000)], ORIGIN)
    connection.rollback()
    output.append(connection, tables, [records(1000)], ORIGIN)
    connection.commit()
    assert PostgresTable().drain(job.run, job, testbed, 30)["records"] == 1000
    assert len(list(job.run.delivered.glob("*.parquet"))) == 3
    assert histories.read_delivered(job.run).sequence.tolist() == list(range(1000))


def test_to_delete_an_output_rolls_back_what_is_prepared_and_may_be_repeated(
    testbed: Testbed, job: SparkJob, tables: Tables, judge: Connection
) -> None:
    both(job)
    for _ in range(2):
        PostgresTable().delete(job, testbed)
    assert output.prepared(judge, f"{tables.schema}:") == []
    assert judge.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", [tables.schema]).fetchone() == (0,)
    assert PostgresTwoPhaseCommit().recover(job) == {}, "recovery after the output was deleted finds nothing to do"


@pytest.mark.parametrize("strategy", ["two_phase_commit", "postgres_two_phase_commit"])
def test_a_run_of_a_testbed_that_was_replaced_is_healed_on_the_one_that_is_up(testbed: Testbed, job: SparkJob, strategy: str) -> None:
    gone = {"bootstrap": "127.0.0.1:1", "postgres": postgres.conninfo(Path("/nowhere"), 1)}
    replace(job, **gone, strategy=strategy, sink=STRATEGIES[strategy].sink).write()
    healing.restore(job.run, testbed)
    assert job.run.journal.last(Restored) is not None


def test_an_empty_part_has_no_range() -> None:
    assert (Copied().records, Copied().ranges) == (0, {})
    assert output.waiting(iter([records(0), records(0)])) is None
    assert [batch.num_rows for batch in output.waiting(iter([records(0), records(3), records(2)])) or []] == [3, 2]
