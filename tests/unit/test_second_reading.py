"""A large output is read twice in stretches: they are compared, the rest is judged by the drain's word, and the verdict says how much."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamproof.evidence import manifest
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.second_reading import SecondReading, Stretch, path, sample
from streamproof.report.report import _facts
from streamproof.sinks import second_reading
from streamproof.sinks.files.folder import ListedFiles
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.judge import judge
from tests.support.histories import SPEC
from tests.support.jobs import spark_job
from tests.unit.test_second_reader import DAMAGED, Row, _judged, _rows, _write

ENDS = {0: 1_234_567, 1: 12, 2: 0, 7: 900_000}


def test_stretches_are_chosen_by_the_seed_and_hold_no_more_than_is_allowed() -> None:
    one, same, other = sample(ENDS, 1), sample(ENDS, 1), sample(ENDS, 2)
    assert one == same
    assert set(one) != set(other)
    assert 980_000 < sum(stretch.until - stretch.since for stretch in one) <= 1_000_000
    assert all(0 <= stretch.since < stretch.until <= ENDS[stretch.partition] for stretch in one)
    assert all(before.until <= after.since for before, after in itertools.pairwise(one) if before.partition == after.partition)


def test_the_last_stretch_of_each_partition_is_always_read() -> None:
    for ends in (ENDS, dict.fromkeys(range(5000), 700)):
        last = {stretch.partition: stretch.until for stretch in sample(ends, 3)}  # in the order of their offsets
        assert last == {partition: end for partition, end in ends.items() if end}


def test_where_little_was_written_nothing_is_left_out() -> None:
    assert sum(stretch.until - stretch.since for stretch in sample({0: 40_000, 1: 5}, 3)) == 40_005


def _sampled(path: Path, drained: list[Row], stretches: list[Stretch], own: Mapping[int, int] | None = None) -> RunFolder:
    """A run whose second reader read these stretches, rightly."""
    reread = [row for row in _rows() if any(_in(row, stretch) for stretch in stretches)]
    folder = _write(path, drained, reread)
    SecondReading(False, len(reread), own or {0: 20, 1: 20, 2: 20}, tuple(stretches)).write(folder)
    manifest.write(folder)
    return folder


def _in(row: Row, stretch: Stretch) -> bool:
    return bool(row["partition"] == stretch.partition and stretch.since <= row["offset"] < stretch.until)


STRETCHES = [Stretch(0, 0, 4), Stretch(0, 15, 20), Stretch(2, 5, 20)]


def test_a_right_drain_agrees_and_the_verdict_says_how_much_was_read_twice(tmp_path: Path) -> None:
    verdict, conflict = _judged(_sampled(tmp_path / "run", _rows(), STRETCHES))
    assert (verdict.outcome, conflict) == ("PASSED", None), verdict.reason
    assert verdict.to_json()["read_twice"] == {"records": 24, "of": 60, "ranges": 3}
    assert ("Read twice", "24 of 60 delivered records") in _facts(verdict, of_a_user=False)


def test_what_the_drain_misreads_within_a_stretch_is_named_and_outside_it_is_judged_by_its_word(tmp_path: Path) -> None:
    within = [row for row in _rows() if (row["partition"], row["offset"]) != (2, 5)]
    _, conflict = _judged(_sampled(tmp_path / "within", within, STRETCHES))
    assert conflict == "the drain and the second reader of the output do not agree: only the second reader found record 0/17 at output 2/5"
    outside = [row for row in _rows() if (row["partition"], row["offset"]) != (2, 4)]
    verdict, conflict = _judged(_sampled(tmp_path / "outside", outside, STRETCHES))
    assert (verdict.outcome, verdict.anomalies["LOST"], conflict) == ("FAILED", 1, None)


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("number", [17, 14])
def test_damage_is_found_by_both_judges_inside_and_outside_of_the_stretches(number: int, damage: str, tmp_path: Path) -> None:
    rows, stretches = _rows(), [Stretch(2, 5, 20)]
    rows[number] = DAMAGED[damage](rows[number])
    folder = _sampled(tmp_path / "run", rows, stretches)
    if number == 17:
        folder = _write(tmp_path / "again", rows, [row for row in rows if _in(row, stretches[0])])
        SecondReading(False, 15, {0: 20, 1: 20, 2: 20}, tuple(stretches)).write(folder)
        manifest.write(folder)
    verdict, conflict = _judged(folder)
    assert (verdict.outcome, verdict.anomalies["CORRUPTED"], conflict) == ("FAILED", 1, None)


def test_a_drain_that_stops_early_is_seen_by_the_ends_of_the_second_reader(tmp_path: Path) -> None:
    rows = [row for row in _rows() if (row["partition"], row["offset"]) != (1, 19)]
    _, conflict = _judged(_sampled(tmp_path / "run", rows, STRETCHES))
    assert conflict == (
        "the drain and the second reader of the output do not agree: the drain found the end of output 1 at 19, the second reader at 20"
    )


def test_a_partition_that_the_drain_does_not_know_is_named(tmp_path: Path) -> None:
    _, conflict = _judged(_sampled(tmp_path / "run", _rows(), STRETCHES, {0: 20, 1: 20, 2: 20, 3: 5}))
    assert conflict is not None
    assert conflict.endswith("the drain found the end of output 3 at no offset, the second reader at 5")


def test_ends_of_a_drain_that_was_not_complete_are_not_compared(tmp_path: Path) -> None:
    folder = _sampled(tmp_path / "run", _rows(), STRETCHES, {0: 20, 1: 25, 2: 20})
    folder.drain.write_text(folder.drain.read_text().replace('"complete": true', '"complete": false'))
    manifest.write(folder)
    verdict, conflict = _judged(folder)
    assert (verdict.outcome, conflict) == ("INCONCLUSIVE", None)


def test_a_second_reading_that_does_not_add_up_is_damaged_evidence(tmp_path: Path) -> None:
    folder = _sampled(tmp_path / "run", _rows(), STRETCHES)
    reading = SecondReading.read(folder)
    assert reading is not None
    for stretches, records, complaint in (
        (reading.stretches, 25, "says 25 records, .* holds 24"),
        (reading.stretches[:2], 24, "has an offset 5 of partition 2, .* names no such"),
    ):
        SecondReading(False, records, reading.ends, stretches).write(folder)
        manifest.write(folder)
        with pytest.raises(EvidenceError, match=complaint):
            judge(folder, SPEC)


def test_the_ranges_are_in_the_manifest(tmp_path: Path) -> None:
    folder = _sampled(tmp_path / "run", _rows(), STRETCHES)
    path(folder).write_text(path(folder).read_text().replace('"whole": false', '"whole": true'))
    with pytest.raises(EvidenceError, match=r"ranges.json is damaged evidence"):
        judge(folder, SPEC)


def test_a_large_folder_of_files_is_read_again_in_stretches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_reading, "MOST_RECORDS", 30)
    folder = _write(tmp_path / "run", _rows(), None)
    job, testbed, sink = spark_job(folder, "file_sink", sink="listed_files"), cast(Testbed, None), ListedFiles()
    job.files.mkdir()
    rows = _rows()
    for number, some in enumerate((rows[:40], rows[40:])):
        pq.write_table(pa.table({name: [row[name] for row in some] for name in ("key", "value")}), job.files / f"part-{number}.parquet")
    drained: dict[str, Any] = sink.drain(folder, job, testbed, 30)
    second_reading.read_again(folder, job, testbed, drained, 7, 30)
    manifest.write(folder)
    verdict, conflict = _judged(folder)
    assert conflict is None
    assert verdict.read_twice is not None
    assert 20 <= verdict.read_twice.records <= 30
    found = [row["offset"] for file in sorted(folder.delivered_again.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    assert {39, 19} <= set(found)
