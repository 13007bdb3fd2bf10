"""A folder of a user's own files: what counts as delivered, and that the drain and the second reader find the same by code of their own."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamproof.evidence import histories, locations, manifest
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.locations import Kind, Location
from streamproof.evidence.outcome import Outcome
from streamproof.evidence.second_reading import Stretch
from streamproof.jobs.job import Job
from streamproof.sinks import second_reading
from streamproof.sinks.files import csv_rows
from streamproof.sinks.files.rows import FileRows
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.verdict import Verdict
from tests.support.histories import Story, just_before_its_batch_ended, sent_times
from tests.support.jobs import spark_job
from tests.unit.test_locations import _judged

COUNT = 60
NO_TESTBED = cast(Testbed, None)
PLACE = Location(Kind.COLUMNS, ("order_id",), False)


def _job(path: Path, location: Location = PLACE, **output: Any) -> tuple[RunFolder, Job]:
    """A run that sent sixty records whose payload is not judged, and whose job writes files."""
    folder = Story().write(path)
    sends = [
        histories.SentRow(0, number, number % 3, number // 3, f"k{number % 7}", 0, at, Outcome.ACKED, 0)
        for number, at in enumerate(sent_times(COUNT))
    ]
    histories.write_sent(folder.sent / "00000.parquet", sends)
    described = {"path": "orders", "format": "parquet", "escape": '"', "spark_log": False, **output}
    job = replace(spark_job(folder, "file_sink"), sink="file_rows", output=described, delivers_identity=location.to_dict())
    FileRows().create(job, NO_TESTBED, 4)
    (job.files / "orders").mkdir()
    return folder, job


def _orders(since: int, until: int) -> list[dict[str, Any]]:
    return [{"order_id": locations.text(0, number), "rate": math.nan, "lines": [{"n": number}]} for number in range(since, until)]


def _parquet(job: Job, name: str, rows: list[dict[str, Any]]) -> Path:
    path = job.files / "orders" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def _csv(rows: list[dict[str, Any]], escape: str) -> str:
    """With a column whose text needs quotes."""
    note = '"a {0}"quoted{0}" text,\nof two lines"'.replace("{0}", escape)
    return "\n".join(["order_id,note,amount", *(f"{row['order_id']},{note},1" for row in rows), ""])


def _verdict(folder: RunFolder, job: Job) -> tuple[Verdict, str | None]:
    """The run drained, read again and judged by both. Its files were written before any batch was committed."""
    at = just_before_its_batch_ended(0).timestamp()
    for path in (job.files / "orders").rglob("*"):
        os.utime(path, (at, at))
    drained = FileRows().drain(folder, job, NO_TESTBED, 30)
    second_reading.read_again(folder, job, NO_TESTBED, drained, 7, 30)
    manifest.write(folder)
    return _judged(folder, job.location_delivered)


def _found(verdict: Verdict) -> dict[str, int]:
    return {str(anomaly): count for anomaly, count in verdict.anomalies.items() if count}


def test_every_complete_file_below_the_folder_counts_and_hidden_ones_do_not(tmp_path: Path) -> None:
    folder, job = _job(tmp_path / "run")
    _parquet(job, "part-0.parquet", _orders(0, 40))
    _parquet(job, "day=1/part-1.parquet", _orders(40, 60))
    _parquet(job, "_temporary/part-2.parquet", _orders(0, 5))
    (job.files / "orders" / "_SUCCESS").touch()
    whole = _parquet(job, "part-9.parquet", _orders(7, 9))
    whole.write_bytes(whole.read_bytes()[:-9])
    verdict, conflict = _verdict(folder, job)
    assert (conflict, _found(verdict)) == (None, {}), verdict.reason
    assert folder.read_json(folder.drain)["half_written_files"] == ["part-9.parquet"]


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_what_was_lost_doubled_and_cannot_be_read_is_named_by_both(kind: str, tmp_path: Path) -> None:
    folder, job = _job(tmp_path / "run", format=kind)
    rows = [*_orders(0, 17), *_orders(18, 60), *_orders(5, 6), {**_orders(9, 10)[0], "order_id": "nobody"}]
    if kind == "parquet":
        _parquet(job, "part-0.parquet", rows)
    elif kind == "csv":
        (job.files / "orders" / "part-0.csv").write_text(_csv(rows, '"') + "0000")
    else:
        lines = [json.dumps({**row, "rate": 1.5}) for row in rows]
        (job.files / "orders" / "part-0.json").write_text("\n".join([*lines, '{"order_id": "0000']))
    verdict, conflict = _verdict(folder, job)
    assert (conflict, _found(verdict)) == (None, {"LOST": 1, "DUPLICATED": 1, "CORRUPTED": 1 if kind == "parquet" else 2})


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_files_are_followed_while_they_are_written(kind: str, tmp_path: Path) -> None:
    _, job = _job(tmp_path / "run", format=kind)
    follower = FileRows().follower(job, NO_TESTBED)
    assert list(follower.identities()) == []

    def write(number: int, rows: list[dict[str, Any]]) -> None:
        path = job.files / "orders" / f"part-{number}.{kind}"
        if kind == "parquet":
            _parquet(job, path.name, rows)
        else:
            path.write_text(_csv(rows, '"') if kind == "csv" else "".join(json.dumps({**row, "rate": 0}) + "\n" for row in rows))

    write(0, _orders(0, 3))
    assert list(follower.identities()) == [(0, 0), (0, 1), (0, 2)]
    assert list(follower.identities()) == [], "what has not changed is not read again"
    write(1, _orders(3, 4))
    assert list(follower.identities()) == [(0, 3)]


def test_two_columns_of_numbers_are_an_identity_too(tmp_path: Path) -> None:
    location = Location(Kind.COLUMNS, ("shop", "number"), False)
    folder, job = _job(tmp_path / "run", location)
    _parquet(job, "part-0.parquet", [{"shop": 0, "number": number} for number in range(COUNT)])
    verdict, conflict = _verdict(folder, job)
    assert (conflict, _found(verdict)) == (None, {}), verdict.reason


@pytest.mark.parametrize("escape", ['"', "\\"])
@pytest.mark.parametrize("line", ["\n", "\r\n"])
def test_columns_of_csv_are_found_whatever_their_neighbours_hold(escape: str, line: str, tmp_path: Path) -> None:
    folder, job = _job(tmp_path / "run", format="csv", escape=escape)
    text = _csv(_orders(0, 60), escape).replace("\n", line)
    (job.files / "orders" / "part-0.csv").write_bytes("\ufeff".encode() + text.encode() + line.encode())
    (job.files / "orders" / "part-1.csv").write_text("order_id,note,amount\n")
    (job.files / "orders" / "part-2.csv").write_text("")
    (job.files / "orders" / "part-3.csv").write_text("order_i")
    verdict, conflict = _verdict(folder, job)
    assert (conflict, _found(verdict)) == (None, {}), verdict.reason
    assert folder.read_json(folder.drain)["half_written_files"] == ["part-2.csv", "part-3.csv"]


@pytest.mark.parametrize(
    ("last", "identified"),
    [
        ("3,5,x\n", True),
        ("3,5,x", True),
        ("3,5", False),  # it may have been 57
        ('3,5,"x', True),
        ('"3","5', False),
        ("3,5,x,too,much", True),
        ("3\n", False),
        ("\n3,5,\xff\x00\n", True),
    ],
)
def test_a_row_of_csv_that_was_cut_is_no_more_than_what_it_certainly_says(last: str, identified: bool, tmp_path: Path) -> None:
    path = tmp_path / "part-0.csv"
    path.write_bytes(f"shop,number,note\n0,1,x\n{last}".encode("latin-1"))
    location = Location(Kind.COLUMNS, ("shop", "number"), False)
    found = csv_rows.identities(path, location, '"')
    assert found == [(0, 1), (3, 5) if identified else None]
    assert csv_rows.count(path, '"') == 2
    again = [locations.decode(location, None, value, None) for _, value in csv_rows.values(path, '"', Stretch(0, 0, 2))]
    assert again == found


def test_csv_whose_first_line_names_no_columns_is_named(tmp_path: Path) -> None:
    folder, job = _job(tmp_path / "run", format="csv")
    (job.files / "orders" / "part-0.csv").write_text(f"{locations.text(0, 1)},x\n")
    with pytest.raises(
        EvidenceError, match=r"part-0\.csv has no column order_id .*; its first line must name the columns, it is: 0000.*,.*x"
    ):
        FileRows().drain(folder, job, NO_TESTBED, 30)


def test_of_files_of_spark_those_count_that_its_log_names(tmp_path: Path) -> None:
    folder, job = _job(tmp_path / "run", spark_log=True)
    named = _parquet(job, "part-0.parquet", _orders(0, 60))
    _parquet(job, "part-1.parquet", _orders(0, 20))
    log = job.files / "orders" / "_spark_metadata" / "0"
    log.parent.mkdir()
    log.write_text("v1\n" + json.dumps({"path": f"file://{named}", "action": "add"}))
    verdict, conflict = _verdict(folder, job)
    assert (conflict, _found(verdict)) == (None, {}), verdict.reason


def test_output_that_is_not_where_or_what_was_said_is_named(tmp_path: Path) -> None:
    folder, job = _job(tmp_path / "run")
    _parquet(job, "part-0.parquet", [{"id": locations.text(0, 1)}])
    with pytest.raises(EvidenceError, match=r"part-0\.parquet has no column order_id for the identity; it has: id"):
        FileRows().drain(folder, job, NO_TESTBED, 30)
    with pytest.raises(EvidenceError, match=r"holds no file whose name ends with \.json; it holds part-0\.parquet"):
        FileRows().end(replace(job, output={**job.output, "format": "json"}), NO_TESTBED)
    with pytest.raises(EvidenceError, match=r"the job wrote no folder .*elsewhere; in .* there is: orders"):
        FileRows().end(replace(job, output={**job.output, "path": "elsewhere"}), NO_TESTBED)
