"""What the versions of a table showed: real tables, written by delta-rs and pyiceberg, read by two readers, and compared."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from streamproof.evidence import identity, versions
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.versions import Version
from streamproof.report.report import render
from streamproof.sinks.delta.table import DeltaTable, history, versions_again
from streamproof.sinks.iceberg import metadata
from streamproof.sinks.iceberg.metadata import path_of
from streamproof.sinks.iceberg.table import history_again
from streamproof.sinks.lakehouse import history as lake
from streamproof.sinks.lakehouse.history import History
from streamproof.sinks.lakehouse.table import shown
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.checks import vanished
from streamproof.verdict.checks.vanished import check_versions, gaps, unseen
from streamproof.verdict.guarantee import Guarantee, Promise
from streamproof.verdict.judge import RunSpec, judge
from tests.mutation import clean
from tests.mutation.damage import DAMAGES
from tests.support.jobs import spark_job

TESTBED = cast(Testbed, None)  # it is not asked for anything
Gone = dict[int, tuple[int, int, int]]
"""By the record's sequence: the version that showed it last, the next one, and the one that showed it again, -1: none."""


def _rows(first: int, count: int) -> pa.Table:
    values = [identity.encode(0, sequence, b'{"n":%d}' % sequence, b"k") for sequence in range(first, first + count)]
    return pa.table({"key": pa.array([b"k"] * count, pa.binary()), "value": pa.array(values, pa.binary())})


def _gone(folder: RunFolder) -> Gone:
    found = gaps(folder, versions.known(folder))
    columns = (column.tolist() for column in (found.sequence, found.last, found.gone, found.back))
    return {sequence: (last, gone, back) for sequence, last, gone, back in zip(*columns, strict=True)}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


# --- Delta --------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(folder: RunFolder) -> Path:
    """A Delta table with the versions 0 to 3, of ten records each."""
    path = folder.path / "output"
    for batch in range(4):
        deltalake.write_deltalake(path, _rows(10 * batch, 10), mode="append")
    return path


def _drained(folder: RunFolder) -> Gone:
    drained = DeltaTable().drain(folder, spark_job(folder, "delta_sink"), TESTBED, 1.0)
    check_versions(folder, drained["records"])
    return _gone(folder)


def test_a_table_that_only_grew_shows_what_it_showed_and_needs_no_rows(folder: RunFolder, table: Path) -> None:
    assert _drained(folder) == {}
    known = versions.known(folder)
    assert known is not None
    assert (known.told, known.whole, known.unread) == (tuple(f"version {number}, WRITE" for number in range(4)), (True,) * 4, ())
    assert (known.records, known.added, known.removed) == ((10, 20, 30, 40), (1,) * 4, (0,) * 4)
    assert list(versions.rows(folder)) == []
    assert unseen(folder) == []


def test_a_compaction_takes_nothing_away_and_a_restore_does(folder: RunFolder, table: Path) -> None:
    deltalake.DeltaTable(table).optimize.compact()  # version 4
    assert _drained(folder) == {}
    assert sum(len(rows.since) for rows in versions.rows(folder)) == 80
    deltalake.DeltaTable(table).restore(1)  # version 5
    taken = dict.fromkeys(range(20, 40), (4, 5, -1))
    assert _drained(folder) == taken
    deltalake.write_deltalake(table, _rows(20, 10), mode="append")
    assert _drained(folder) == {sequence: (4, 5, 6) if sequence < 30 else gone for sequence, gone in taken.items()}


def test_rows_that_are_deleted_are_gone_and_those_beside_them_are_not(folder: RunFolder, table: Path) -> None:
    literal = _rows(3, 1)["value"][0].as_py().hex()
    deltalake.DeltaTable(table).delete(f"value = decode('{literal}', 'hex')")  # the file is written anew with its nine other rows
    assert _drained(folder) == {3: (3, 4, -1)}


def test_a_file_that_was_vacuumed_is_told_and_what_it_held_is_not_judged(folder: RunFolder, table: Path) -> None:
    deltalake.DeltaTable(table).optimize.compact()
    deltalake.DeltaTable(table).restore(1)  # the first two files are back
    gone = sorted(path for path in table.glob("*.parquet") if path.name not in versions_again(table)[-1][1])
    gone[0].unlink()
    _drained(folder)
    known = versions.known(folder)
    assert known is not None
    assert not all(known.whole)
    (told,) = known.unread
    assert told.startswith(f"{gone[0].name}, which version ")
    assert told.endswith("took away, cannot be read any more")
    assert unseen(folder) == [told]


def test_a_file_that_was_kept_before_it_was_deleted_is_read(folder: RunFolder, table: Path) -> None:
    deltalake.DeltaTable(table).optimize.compact()
    found = deltalake.DeltaTable(table)
    doomed = [table / name for name in found.vacuum(0, dry_run=True, enforce_retention_duration=False)]
    lake.keep(folder, table, doomed)
    lake.keep(folder, table, doomed)  # may be repeated
    found.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert len(doomed) == 4
    assert not any(path.exists() for path in doomed)
    assert _drained(folder) == {}
    assert unseen(folder) == []
    known = versions.known(folder)
    assert known is not None
    assert known.records == (10, 20, 30, 40, *[40] * (len(known.told) - 4))
    DeltaTable().delete(spark_job(folder, "delta_sink"), TESTBED)
    assert not folder.kept.exists()


def test_two_readers_that_do_not_find_the_same_files_are_no_evidence(table: Path) -> None:
    found = history(table)
    again = [frozenset(table / name for name in there) for _, there in versions_again(table)]
    lake.compare(found.versions, again)
    with pytest.raises(EvidenceError, match=r"version 2, WRITE: two readers of the table .*; only its metadata name /"):
        lake.compare(found.versions, [*again[:2], again[1], again[3]])
    with pytest.raises(EvidenceError, match="have 4 versions, another reader finds 3"):
        lake.compare(found.versions, again[:3])
    lake.compare(found.versions, [*again[:2], None, again[3]])


# --- Iceberg ------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def iceberg(tmp_path: Path) -> Iterator[Table]:
    """An Iceberg table with four snapshots, of ten records each."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("streamproof")
    table = catalog.create_table("streamproof.delivered", schema=_rows(0, 0).schema)
    for batch in range(4):
        table.append(_rows(10 * batch, 10))
    yield table
    catalog.close()


def _found(folder: RunFolder, table: Table) -> tuple[Gone, History]:
    current = path_of(table.metadata_location)
    found = metadata.history(current)
    lake.write(folder, current.parent.parent, found, history_again(current), shown)
    return _gone(folder), found


def test_snapshots_that_a_table_was_rolled_back_from_were_shown(folder: RunFolder, iceberg: Table) -> None:
    assert _found(folder, iceberg)[0] == {}
    second = iceberg.snapshots()[1].snapshot_id
    iceberg.manage_snapshots().set_current_snapshot(snapshot_id=second).commit()
    iceberg.append(_rows(20, 10))
    gone, found = _found(folder, iceberg)
    assert gone == {sequence: (3, 4, 5 if sequence < 30 else -1) for sequence in range(20, 40)}
    assert [version.told for version in found.versions] == [f"snapshot {number}, append" for number in (1, 2, 3, 4, 2, 5)]
    assert not found.unread


def test_what_is_deleted_or_overwritten_is_gone(folder: RunFolder, iceberg: Table) -> None:
    iceberg.delete(EqualTo("value", _rows(3, 1)["value"][0].as_py()))
    assert _found(folder, iceberg)[0] == {3: (3, 4, -1)}
    iceberg.overwrite(_rows(0, 20))
    assert _found(folder, iceberg)[0].keys() == {3, *range(20, 40)}


def test_snapshots_that_expired_are_known_while_their_metadata_are_there(folder: RunFolder, iceberg: Table) -> None:
    lists = [path_of(snapshot.manifest_list) for snapshot in iceberg.snapshots()]
    ids = [snapshot.snapshot_id for snapshot in iceberg.snapshots()]
    iceberg.maintenance.expire_snapshots().by_ids(ids[:2]).commit()
    gone, found = _found(folder, iceberg)
    assert (gone, len(found.versions), list(found.unread)) == ({}, 4, [])
    lists[1].unlink()
    gone, found = _found(folder, iceberg)
    known = versions.known(folder)
    assert known is not None
    assert (gone, known.whole) == ({}, (True, False, True, True))
    assert unseen(folder) == ["what snapshot 2, append held is not known any more"]
    metadata.documents(path_of(iceberg.metadata_location))[1].unlink()
    assert "1 metadata files of older states are not there any more" in _found(folder, iceberg)[1].unread


# --- the check ----------------------------------------------------------------------------------------------------------------------


def _written(folder: RunFolder, *changes: tuple[str, str], sequences: dict[str, list[int | None]]) -> None:
    """Versions with the files that each adds and removes, a letter each, and the records of each file."""

    def read(path: Path) -> versions.Identities | None:
        held = sequences.get(path.name)
        return (
            None if held is None else (pa.array([None if one is None else 0xFFFF for one in held], pa.int32()), pa.array(held, pa.int64()))
        )

    files = [(tuple(map(Path, added)), tuple(map(Path, removed))) for added, removed in changes]
    said = [Version(number, f"version {number}", added, removed) for number, (added, removed) in enumerate(files)]
    versions.write(folder, said, read, [])


@pytest.mark.parametrize("at_once", [1 << 22, 2])
def test_a_record_is_there_as_long_as_any_file_has_it(folder: RunFolder, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vanished, "AT_ONCE", at_once)
    held: dict[str, list[int | None]] = {"a": [1, 2, 3], "b": [1, None], "c": [2, 9], "d": [3]}
    changes = [("a", ""), ("b", ""), ("c", "a"), ("d", ""), ("", "c"), ("c", "")]
    _written(folder, *changes, sequences=held)
    assert _gone(folder) == {3: (1, 2, 3), 2: (3, 4, 5), 9: (3, 4, 5)}
    found = gaps(folder, versions.known(folder))
    assert set(found.producer.tolist()) == {0xFFFF}, "the largest one that there is"


def test_of_a_version_that_was_not_read_whole_nothing_is_said(folder: RunFolder) -> None:
    held: dict[str, list[int | None]] = {"a": [1, 2], "c": [1], "d": [2]}
    _written(folder, ("a", ""), ("b", "a"), ("c", "b"), ("", ""), ("d", ""), sequences=held)
    assert _gone(folder) == {2: (0, 1, 4)}, "1 may have been in b, and 2 too; but then it is missing from version 2"


def test_evidence_that_contradicts_itself_is_refused(folder: RunFolder) -> None:
    _written(folder, ("a", ""), ("b", "a"), sequences={"a": [1], "b": [1, 2]})
    check_versions(folder, 2)
    with pytest.raises(EvidenceError, match=r"shows 2 records, .*delivered holds 3"):
        check_versions(folder, 3)
    known = folder.known_versions.read_text()
    folder.known_versions.write_text(known.replace('"at_ms": 0', '"at_ms": "soon"'))
    with pytest.raises(EvidenceError, match=r"versions\.json is damaged"):
        check_versions(folder, 2)
    folder.known_versions.write_text('{"versions": [], "unread": []}')
    with pytest.raises(EvidenceError, match=r"has 0 versions, .* holds a row of version 1"):
        check_versions(folder, 2)
    folder.known_versions.unlink()
    with pytest.raises(EvidenceError, match=r"versions\.json is missing"):
        check_versions(folder, 2)
    shutil.rmtree(folder.versions)
    check_versions(folder, 2)
    assert unseen(folder) == ["the output keeps no versions"]


def test_a_file_that_came_back_is_shown_in_two_spans() -> None:
    one = Version(0, "", (Path("a"),))
    gone, back = Version(1, "", (), (Path("a"),)), Version(2, "", (Path("a"),))
    assert versions.spans([one, gone, back]) == {Path("a"): [(0, 1), (2, None)]}
    assert versions.spans([one, replace(back, removed=(Path("a"),))]) == {Path("a"): [(0, 1), (1, None)]}
    assert versions.spans([Version(0, "", (Path("b"),), ()), Version(1, "", (), (Path("b"),))]) == {Path("b"): [(0, 1)]}


def test_blame_names_the_versions_and_what_went_on_then(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    evidence = clean.make(rng, "delta_sink")
    assert DAMAGES["many_records_that_some_versions_lack"](evidence, rng)
    folder = evidence.write(tmp_path)
    spec = RunSpec("run", "x", "job", "delta_sink", Guarantee.EXACTLY_ONCE, (), (), 1, promises=frozenset({Promise.MONOTONIC}))
    judgement = judge(folder, spec)
    blames = [row["blame"] for row in judgement.table.to_pylist() if row["anomaly"] == "VANISHED"]
    assert len(blames) == len(evidence.truth) > 1
    where = r"record \d+/\d+ \(source partition \d+, offset \d+\)"
    says = rf"{where} vanished: version \d+ still showed it, version \d+ did not, version \d+ did again"
    assert all(re.fullmatch(says, blame) for blame in blames), blames
    assert judgement.verdict.reason == f"delta_sink broke exactly-once: {len(blames)} VANISHED"


def test_the_report_has_a_row_for_each_version_and_says_what_it_lacks(folder: RunFolder, table: Path) -> None:
    deltalake.DeltaTable(table).optimize.compact()
    deltalake.DeltaTable(table).restore(1)
    deltalake.write_deltalake(table, _rows(20, 10), mode="append")
    _drained(folder)
    page = render(folder).read_text()
    section = page[page.index('id="versions-title"') :].partition("</section>")[0]
    rows = [re.sub(r"<[^>]+>", " ", row).split() for row in section.split("<tr>")[2:]]
    assert [(row[row.index("version") + 1].rstrip(","), row[-3:]) for row in rows[4:]] == [
        ("4", ["4", "40", "–"]),
        ("5", ["✗", "20", "records"]),
        ("6", ["✗", "10", "records"]),
    ]
