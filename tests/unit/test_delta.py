"""A Delta table as output: real tables, written by delta-rs; the drain reads their log by itself, and delta-rs is the second reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamproof.engines.spark.job import SparkJob
from streamproof.engines.spark.spec import profile
from streamproof.evidence import histories, identity
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.second_reading import Stretch
from streamproof.faults import FAULTS
from streamproof.jobs import windows
from streamproof.sinks.delta import log
from streamproof.sinks.delta.table import DeltaTable
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.anomaly import Anomaly
from tests.support.jobs import spark_job

TABLE = DeltaTable()
TESTBED = cast(Testbed, None)  # it is not asked for anything


def _rows(first: int, count: int, key: bytes | None = b"k") -> pa.Table:
    values = [identity.encode(0, sequence, b'{"n":%d}' % sequence, key) for sequence in range(first, first + count)]
    return pa.table({"key": pa.array([key] * count, pa.binary()), "value": pa.array(values, pa.binary())})


def _run(tmp_path: Path) -> tuple[RunFolder, SparkJob]:
    folder = RunFolder.create(tmp_path / "run")
    job = spark_job(folder, "delta_sink")
    TABLE.create(job, TESTBED, 1)
    return folder, job


def _drained(folder: RunFolder, job: SparkJob) -> list[tuple[int, int, int]]:
    """Partition, offset and sequence of each record. What the second reader reads must be the same."""
    drained = TABLE.drain(folder, job, TESTBED, 1.0)
    found = histories.read_delivered(folder)
    assert (drained["complete"], drained["records"]) == (True, len(found))
    rows = list(zip(found.partition.tolist(), found.offset.tolist(), found.sequence.tolist(), strict=True))
    ends = TABLE.ends_again(job, TESTBED, 1.0)
    assert drained["end_offsets"] == {str(number): end for number, end in ends.items()}
    files = histories.files(folder.delivered)
    times = [each for file in files for each in pq.read_table(file, columns=["partition", "delivered_at"]).to_pylist()]
    stretches = [Stretch(number, 0, end) for number, end in ends.items()]
    again = list(TABLE.rows(job, TESTBED, "", stretches, 1.0))
    decoded = [(row[0], row[1], (identity.decode(row[7], row[6]) or found).sequence) for row in again]
    assert sorted(decoded) == sorted(rows)
    assert {(row[0], row[5]) for row in again} == {(each["partition"], int(each["delivered_at"].timestamp() * 1000)) for each in times}
    return sorted(rows, key=lambda row: row[2])


def test_what_the_newest_version_holds_is_delivered_and_each_file_says_which_version_brought_it(tmp_path: Path) -> None:
    folder, job = _run(tmp_path)
    assert _drained(folder, job) == []  # nobody has made the table
    for batch in range(3):
        properties = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("query", batch)])
        deltalake.write_deltalake(job.files, _rows(10 * batch, 10), mode="append", commit_properties=properties)
    rows = _drained(folder, job)
    assert [sequence for _, _, sequence in rows] == list(range(30))
    places = folder.read_json(folder.drain)["places"]
    assert {places[str(rows[10 * batch][0])] for batch in range(3)} == {
        f"version {batch}, WRITE, transaction {batch} of query" for batch in range(3)
    }
    assert TABLE.end(job, TESTBED) == folder.read_json(folder.drain)["end"]
    assert TABLE.reader(job, TESTBED).visible() == {0: 1, 1: 1, 2: 1}


def test_a_file_that_no_version_names_is_no_delivery_and_one_that_is_replaced_is_none_any_more(tmp_path: Path) -> None:
    folder, job = _run(tmp_path)
    path = job.files
    for batch in range(4):
        deltalake.write_deltalake(path, _rows(10 * batch, 10), mode="append")
    pq.write_table(_rows(0, 10), path / "part-of-an-attempt-that-failed.parquet")
    before = TABLE.end(job, TESTBED)
    assert len(_drained(folder, job)) == 40
    written = min(file.written_ms for file in log.active(log.versions(path)).values())
    deltalake.DeltaTable(path).optimize.compact()
    assert TABLE.end(job, TESTBED) != before
    assert [sequence for _, _, sequence in _drained(folder, job)] == list(range(40))
    (compacted,) = log.active(log.versions(path)).values()
    assert (compacted.version.operation, compacted.written_ms) == ("OPTIMIZE", written), "its rows were there before"
    deltalake.DeltaTable(path).restore(1)
    assert [sequence for _, _, sequence in _drained(folder, job)] == list(range(20))


def test_null_keys_and_values_that_are_no_envelopes_are_read_as_they_are(tmp_path: Path) -> None:
    folder, job = _run(tmp_path)
    path = job.files
    odd = pa.table({"key": pa.array([None, b"", b"k"], pa.binary()), "value": pa.array([b"{}", None, b"\xff"], pa.binary())})
    deltalake.write_deltalake(path, pa.concat_tables([_rows(0, 2, None), odd]), mode="append")
    TABLE.drain(folder, job, TESTBED, 1.0)
    found = histories.read_delivered(folder)
    rows = sorted(zip(found.identified.tolist(), found.sequence.tolist(), (found.crc >= 0).tolist(), strict=True))
    assert rows == [(False, -1, False)] * 3 + [(True, 0, True), (True, 1, True)]


@pytest.mark.parametrize("number", [0, 1])
def test_a_log_that_lacks_a_version_is_refused_and_not_read_short(number: int, tmp_path: Path) -> None:
    folder, job = _run(tmp_path)
    path = job.files
    for batch in range(3):
        deltalake.write_deltalake(path, _rows(10 * batch, 10), mode="append")
    (path / log.LOG / f"{number:020d}.json").unlink()
    with pytest.raises(EvidenceError, match=f"has no version {number}, though it has a version {number + 1}: the table is damaged"):
        TABLE.drain(folder, job, TESTBED, 1.0)


def test_a_file_that_a_version_names_and_that_cannot_be_read_is_no_evidence(tmp_path: Path) -> None:
    folder, job = _run(tmp_path)
    path = job.files
    deltalake.write_deltalake(path, _rows(0, 10), mode="append")
    (file,) = path.glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(EvidenceError, match="the table's metadata name this file, and it cannot be read"):
        TABLE.drain(folder, job, TESTBED, 1.0)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "is no version of a Delta table"),
        ('{"add": {"path": "x.parquet"}}', "is no version of a Delta table"),
        ('{"add": {"path": "x.parquet", "modificationTime": 1, "deletionVector": {"storageType": "u"}}}', "has a deletion vector"),
    ],
)
def test_a_version_that_is_not_understood_is_named(line: str, says: str, tmp_path: Path) -> None:
    folder, job = _run(tmp_path)
    path = job.files
    deltalake.write_deltalake(path, _rows(0, 10), mode="append")
    with (path / log.LOG / f"{0:020d}.json").open("a") as file:
        file.write(f"\n{line}\n")
    with pytest.raises(EvidenceError, match=says):
        TABLE.drain(folder, job, TESTBED, 1.0)


def test_names_in_the_log_are_read_as_delta_writes_them(tmp_path: Path) -> None:
    _, job = _run(tmp_path)
    folder = job.files
    (folder / log.LOG).mkdir()
    action = {"add": {"path": "part%20one.parquet", "modificationTime": 7}}
    (folder / log.LOG / f"{0:020d}.json").write_text(json.dumps(action))
    assert list(log.active(log.versions(folder))) == ["part one.parquet"]


def test_each_version_is_a_step_of_the_job_and_its_checksum_is_none(tmp_path: Path) -> None:
    _, job = _run(tmp_path)
    for batch in range(2):
        deltalake.write_deltalake(job.files, _rows(10 * batch, 10), mode="append")
    (job.files / log.LOG / f"{1:020d}.crc").write_text("{}")
    assert [step.name for step in windows.files(job)].count("_delta_log") == 2


@pytest.mark.parametrize(
    ("fault", "strategy", "shown"),
    [
        ("restore_table", "delta_sink", []),  # LOST: it breaks what it promises, and the run FAILED
        ("restore_table", "delta_foreach_txn_new_checkpoint", None),
        ("lose_checkpoint_metadata", "delta_sink", []),
        ("lose_checkpoint_metadata", "delta_foreach_append", [Anomaly.DUPLICATED]),
        ("lose_checkpoint_metadata", "delta_merge", []),
    ],
)
def test_what_a_fault_must_show_is_only_what_the_job_may_show(fault: str, strategy: str, shown: list[Anomaly] | None) -> None:
    job = profile(strategy)
    if shown is None:
        with pytest.raises(ValueError, match="has no checkpoint that it goes on from"):
            FAULTS[fault].check(job, {})
    else:
        assert FAULTS[fault].provokes(job, {}) == shown


@pytest.mark.parametrize("fault", ["restore_table", "compact_table", "concurrent_writer", "lose_table_log_entry"])
def test_a_table_is_broken_only_where_there_is_one(fault: str) -> None:
    with pytest.raises(ValueError, match=r"has no .*(Delta table|table of Delta)"):
        FAULTS[fault].check(profile("checkpoint"), {})
    FAULTS[fault].check(profile("delta_merge"), {})
