"""Identities in a location of a job's own: both judges find them by code of their own, and name the same records of damaged output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from streamproof.evidence import histories, identity, locations
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.locations import Kind, Location
from streamproof.evidence.outcome import Outcome
from streamproof.evidence.payloads import PAYLOADS, WITH_HEADER, write_payloads
from streamproof.load.placing import Placed, placed
from streamproof.run.stages import suite_spec
from streamproof.suites import agreement
from streamproof.verdict.judge import judge
from streamproof.verdict.verdict import Verdict
from tests.support.histories import SPEC, Story, just_before_its_batch_ended, sent_times
from tests.unit.test_second_reader import _seal

COUNT = 60
Row = dict[str, Any]
PLACES = {
    "header": Location(Kind.HEADER, ("order-id",), False),
    "key": Location(Kind.KEY, (), False),
    "json": Location(Kind.JSON, ("/order/id",), False),
    "column": Location(Kind.COLUMNS, ("order_id",), False),
    "columns": Location(Kind.COLUMNS, ("shop", "number"), False),
}
WHOLE = {f"{name}, kept whole": replace(location, whole=True) for name, location in PLACES.items() if location.kind is not Kind.COLUMNS}
ALL = PLACES | WHOLE


def _sent(location: Location) -> list[Placed]:
    return [
        placed(location, location.whole, 0, number, b"k%d" % (number % 7), b'{"n":%d,"name":"\xc3\xa4"}' % number)
        for number in range(COUNT)
    ]


def _rows(location: Location) -> list[Row]:
    """The output of a job that keeps the identity there, as a plain client reads it."""
    return [_row(number, record, location) for number, record in enumerate(_sent(location))]


def _row(number: int, record: Placed, location: Location) -> Row:
    where = {"partition": number % 3, "offset": number // 3, "batch": number // 15, "attempt": 0, "start": 1}
    header = {"header": record.headers[0][1]} if location.header else {}
    at = just_before_its_batch_ended(number)
    return {**where, "delivered_at": at, "key": record.key, "value": record.value, **header}


def _write(path: Path, location: Location, rows: list[Row]) -> RunFolder:
    """A run whose job keeps identities in ``location``, and whose output both readers read alike."""
    folder = Story().write(path)
    sends = [
        histories.SentRow(0, number, number % 3, number // 3, record.key.decode(), record.crc, sent_at, Outcome.ACKED, record.sha256)
        for number, (record, sent_at) in enumerate(zip(_sent(location), sent_times(COUNT), strict=True))
    ]
    histories.write_sent(folder.sent / "00000.parquet", sends)
    histories.write_delivered(folder.delivered / "00000.parquet", _drained(location, rows))
    folder.delivered_again.mkdir()
    names = (WITH_HEADER if location.header else PAYLOADS).names
    write_payloads(folder.delivered_again, 0, {name: [row[name] for row in rows] for name in names})
    _seal(folder)
    return folder


def _drained(location: Location, rows: list[Row]) -> dict[str, list[Any]]:
    found = [locations.decode(location, row["key"], row["value"], row.get("header")) for row in rows]
    crc = [identity.checksum(row["key"], row["value"] or b"") if location.whole else 0 for row in rows]
    return {
        "producer": [one and one[0] for one in found],
        "sequence": [one and one[1] for one in found],
        "crc": [each if one else None for each, one in zip(crc, found, strict=True)],
        **{name: [row[name] for row in rows] for name in histories.DELIVERED.names if name in rows[0]},
    }


def _judged(folder: RunFolder, location: Location) -> tuple[Verdict, str | None]:
    spec = replace(SPEC, location=location)
    judgement = judge(folder, spec)
    return judgement.verdict, agreement.check(folder, suite_spec(spec), judgement.table)


@pytest.mark.parametrize("name", ALL)
def test_both_judges_find_every_identity(name: str, tmp_path: Path) -> None:
    verdict, conflict = _judged(_write(tmp_path / "run", ALL[name], _rows(ALL[name])), ALL[name])
    assert (verdict.outcome, conflict) == ("PASSED", None), verdict.reason
    assert set(verdict.anomalies.values()) == {0}


@pytest.mark.parametrize("name", ALL)
def test_both_judges_name_what_was_lost_and_doubled(name: str, tmp_path: Path) -> None:
    rows = _rows(ALL[name])
    again = {**rows[5], "offset": 1000}
    verdict, conflict = _judged(_write(tmp_path / "run", ALL[name], [*rows[:17], *rows[18:], again]), ALL[name])
    assert (verdict.outcome, conflict) == ("FAILED", None)
    assert {anomaly: count for anomaly, count in verdict.anomalies.items() if count} == {"LOST": 1, "DUPLICATED": 1}


def _with(field: str, change: Callable[[bytes], bytes | None]) -> Callable[[Row], Row]:
    return lambda row: {**row, field: change(row[field])}


TEXT = locations.text(0, 17).encode()
UNREADABLE: list[tuple[str, Callable[[Row], Row]]] = [
    ("header", _with("header", lambda value: None)),
    ("header", _with("header", lambda value: value[:-1])),
    ("header", _with("header", lambda value: value.replace(b"-4000-", b"-5000-"))),
    ("header", _with("header", lambda value: b"\xff" + value[1:])),
    ("key", _with("key", lambda value: None)),
    ("key", _with("key", lambda value: value + b"\n")),
    ("json", _with("value", lambda value: None)),
    ("json", _with("value", lambda value: value[:-1])),
    ("json", _with("value", lambda value: value + b"x")),
    ("json", _with("value", lambda value: value[:-1] + b',"rate":NaN}')),
    ("json", _with("value", lambda value: value[:-1] + b",}")),
    ("json", _with("value", lambda value: value.replace(b"\xc3", b""))),
    ("json", _with("value", lambda value: b"[" + value + b"]")),
    ("json", _with("value", lambda value: value.replace(b'"' + TEXT + b'"', b"17"))),
    ("json", _with("value", lambda value: value.replace(b'"id"', b'"ids"'))),
    ("column", _with("value", lambda value: value.replace(TEXT, b"17"))),
    ("columns", _with("value", lambda value: value.replace(b'"number":17', b'"number":null'))),
    ("columns", _with("value", lambda value: value.replace(b'"number":17', b'"number":-17'))),
    ("columns", _with("value", lambda value: value.replace(b'"number":17', b'"number":17.5'))),
    ("columns", _with("value", lambda value: value.replace(b'"shop":0', b'"shop":70000'))),
]


@pytest.mark.parametrize(("name", "damage"), UNREADABLE)
def test_an_identity_that_cannot_be_read_is_found_by_both(name: str, damage: Callable[[Row], Row], tmp_path: Path) -> None:
    rows = _rows(PLACES[name])
    damaged = damage(rows[17])
    assert damaged != rows[17]
    verdict, conflict = _judged(_write(tmp_path / "run", PLACES[name], [*rows[:17], damaged, *rows[18:]]), PLACES[name])
    assert (verdict.outcome, conflict) == ("FAILED", None)
    assert {anomaly: count for anomaly, count in verdict.anomalies.items() if count} == {"LOST": 1, "CORRUPTED": 1}


READABLE: list[tuple[str, Callable[[Row], Row]]] = [
    ("json", _with("value", lambda value: value[:-1] + b',"order":{"id":"another"}}')),
    ("json", _with("value", lambda value: value[:-1] + b',"half":"\\ud83d"}')),
    ("json", _with("value", lambda value: b" " + value + b"\n")),
    ("header", _with("value", lambda value: b"\xff")),
    ("key", _with("value", lambda value: None)),
    ("columns", _with("value", lambda value: value.replace(b'"number":17', b'"number":"17"'))),
]


@pytest.mark.parametrize(("name", "change"), READABLE)
def test_what_a_job_of_this_kind_may_do_is_no_damage(name: str, change: Callable[[Row], Row], tmp_path: Path) -> None:
    rows = _rows(PLACES[name])
    changed = change(rows[17])
    assert changed != rows[17]
    verdict, conflict = _judged(_write(tmp_path / "run", PLACES[name], [*rows[:17], changed, *rows[18:]]), PLACES[name])
    assert (verdict.outcome, conflict) == ("PASSED", None), verdict.reason


@pytest.mark.parametrize("name", WHOLE)
def test_a_changed_value_is_damage_where_the_job_keeps_it_and_no_business_of_ours_where_it_does_not(name: str, tmp_path: Path) -> None:
    location = WHOLE[name]
    for whole, outcome, corrupted in ((True, "FAILED", 1), (False, "PASSED", 0)):
        here = replace(location, whole=whole)
        rows = _rows(here)
        rows[17]["value"] = rows[17]["value"].replace(b'"n":17', b'"n":18')
        verdict, conflict = _judged(_write(tmp_path / outcome, here, rows), here)
        assert (verdict.outcome, verdict.anomalies["CORRUPTED"], conflict) == (outcome, corrupted, None)


def test_a_drain_that_reads_another_identity_is_named(tmp_path: Path) -> None:
    location = PLACES["header"]
    folder = _write(tmp_path / "run", location, _rows(location))
    file = folder.delivered / "00000.parquet"
    columns = pq.read_table(file).to_pydict()
    columns["sequence"][17] = 18
    histories.write_delivered(file, columns)
    _seal(folder)
    _, conflict = _judged(folder, location)
    assert conflict is not None
    assert "only the second reader found record 0/17" in conflict


def test_a_payload_keeps_its_own_fields_beside_the_identity() -> None:
    record = placed(Location(Kind.JSON, ("/order/id",)), True, 3, 0xA1B2, b"k", b'{"order":{"shop":1},"n":2}')
    assert record.value == b'{"order":{"shop":1,"id":"00000003-0000-4000-8000-00000000a1b2"},"n":2}'
    assert locations.decode(Location(Kind.JSON, ("/order/id",)), b"k", record.value, None) == (3, 0xA1B2)
    assert placed(PLACES["columns"], False, 3, 9, b"k", b'{"n":2}').value == b'{"shop":3,"number":9,"n":2}'
