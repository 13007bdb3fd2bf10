"""Input of a user's own: what is sent of a file, and what is said of one that cannot be sent."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from streamproof.errors import BadInput
from streamproof.evidence.locations import ENVELOPE, Kind, Location
from streamproof.experiment.model import Experiment
from streamproof.experiment.schedule import plan
from streamproof.load import files, workload
from streamproof.load.recorded import Recorded
from streamproof.load.spec import Workload
from streamproof.run import doctor, stages

ROWS = [{"shop": f"s{number % 7}", "n": number, "note": None if number % 2 else 'ä,"b"'} for number in range(120)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "streamproof.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("STREAMPROOF_PROJECT", raising=False)
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "in.parquet")
    return tmp_path


@pytest.mark.parametrize("name", ["in.jsonl", "in.parquet"])
def test_each_row_is_sent_as_an_object_under_its_key(name: str, folder: Path) -> None:
    found = Workload.model_validate({"file": {"path": name, "key": "shop"}})
    sent = list(workload.events(found, 1))
    assert found.records == 120
    assert [json.loads(payload) for _, payload in sent] == ROWS
    assert [key for key, _ in sent] == [row["shop"] for row in ROWS]
    assert found.described == f"120 records of {name}"


def test_columns_of_csv_become_fields_and_an_empty_one_is_null(folder: Path) -> None:
    (folder / "in.csv").write_text('shop,n,note\ns1,1,"a,""b"""\ns2,2,\n')
    assert list(files.events(folder / "in.csv", None)) == [
        ("1", b'{"shop":"s1","n":1,"note":"a,\\"b\\""}'),
        ("2", b'{"shop":"s2","n":2,"note":null}'),
    ]


def test_what_json_has_no_form_for_is_text_or_null(folder: Path) -> None:
    row = {"at": datetime(2026, 1, 2, 3, 4), "price": Decimal("1.50"), "raw": b"\x01\xff", "rate": math.nan, "parts": [math.inf, 1.5]}
    pq.write_table(pa.Table.from_pylist([row]), folder / "odd.parquet")
    ((_, payload),) = files.events(folder / "odd.parquet", None)
    assert json.loads(payload) == {"at": "2026-01-02 03:04:00", "price": "1.50", "raw": "01ff", "rate": None, "parts": [None, 1.5]}


def test_fewer_records_than_the_file_has_may_be_sent(folder: Path) -> None:
    found = Workload.model_validate({"file": {"path": "in.jsonl"}, "records": 100})
    assert len(list(workload.events(found, 1))) == 100


@pytest.mark.parametrize(
    ("name", "text", "key", "told"),
    [
        ("none.jsonl", None, None, "there is no such file"),
        ("in.xlsx", "", None, "expected a file whose name ends with one of .jsonl, .ndjson, .csv, .parquet, .json"),
        ("bad.jsonl", '{"a":1}\n{"a":\n', None, "line 2 is not JSON"),
        ("list.jsonl", "[1]\n", None, "line 1: expected an object"),
        ("bad.parquet", "no parquet", None, "cannot be read"),
        ("keyless.jsonl", '{"a":1}\n{"b":1}\n', "a", "record 2 has no a for its key; it has: b"),
    ],
)
def test_a_file_that_cannot_be_sent_is_named_with_what_is_wrong(
    name: str, text: str | None, key: str | None, told: str, folder: Path
) -> None:
    if text is not None:
        (folder / name).write_text(text)
    with pytest.raises(ValidationError, match="workload") as error:
        Experiment.model_validate({"strategy": "checkpoint", "workload": {"file": {"path": name, "key": key}}})
    assert told in str(error.value)


def test_a_run_is_refused_before_anything_is_started(folder: Path) -> None:
    described = {"strategy": "checkpoint", "workload": {"file": {"path": "in.jsonl"}, "records": 500}, "faults": [], "seed": 1}
    with pytest.raises(BadInput, match=r"workload: file: in.jsonl has 120 records, 500 were asked for"):
        stages.create(Experiment.model_validate(described))
    assert not list((folder / "home" / "runs").glob("*"))


def test_a_stored_experiment_is_read_without_the_file(folder: Path) -> None:
    stored = Experiment.model_validate({"strategy": "checkpoint", "workload": {"file": {"path": "in.jsonl"}}, "seed": 1}).model_dump()
    (folder / "in.jsonl").unlink()
    assert Experiment.model_validate(stored).workload.records == 120


def test_the_doctor_asks_for_no_more_than_the_file_has(folder: Path) -> None:
    given = Experiment.model_validate({"strategy": "checkpoint", "workload": {"file": {"path": "in.jsonl"}}, "seed": 1})
    examined = doctor.experiment_for(given, 60)
    assert (examined.workload.records, examined.micro_batch) == (120, 12)
    examined.workload.check(ENVELOPE)
    assert plan(examined).injections == ()


SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "shop", "type": "string"},
        {"name": "n", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
    ],
}


def _avro_job(**identity: object) -> dict[str, object]:
    reads = {"reads": {"kafka": {"identity": identity}}, "delivers": {"kafka": {"identity": {"header": "id"}}}} if identity else {}
    return {"engine": "command", "command": ["x"], "promises": "at-least-once", **reads}


def test_rows_are_written_as_avro_by_a_schema_with_the_types_that_the_file_has(folder: Path) -> None:
    at = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    rows = [{"shop": "s1", "n": number, "at": at, "price": Decimal("1.50") if number % 2 else None} for number in range(120)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "orders.parquet")
    (folder / "order.avsc").write_text(json.dumps(SCHEMA))
    found = {"job": _avro_job(header="id"), "workload": {"file": {"path": "orders.parquet", "key": "shop", "avro": "order.avsc"}}}
    experiment = Experiment.model_validate({**found, "seed": 1})
    experiment.workload.check(experiment.profile.reads)
    sent = list(workload.events(experiment.workload, 1))
    assert {event.key for event in sent if isinstance(event, Recorded)} == {b"s1"}
    values = [io.BytesIO(event.value or b"") for event in sent if isinstance(event, Recorded)]
    assert [fastavro.schemaless_reader(value, SCHEMA, None) for value in values] == rows


@pytest.mark.parametrize(
    ("row", "schema", "says"),
    [
        ({"shop": "s1"}, json.dumps(SCHEMA), r"record 1 does not fit the schema: .*\bn\b"),
        ({"shop": "s1", "n": "many", "at": 0, "price": None}, json.dumps(SCHEMA), "record 1 does not fit the schema: .* on field n"),
        ({"shop": "s1"}, '{"type": "nothing"}', "order.avsc cannot be read as an Avro schema: .*nothing"),
        ({"shop": "s1"}, "{", "order.avsc cannot be read as an Avro schema"),
        ({"shop": "s1"}, None, "order.avsc cannot be read as an Avro schema"),
    ],
)
def test_what_does_not_fit_the_schema_is_named(row: dict[str, object], schema: str | None, says: str, folder: Path) -> None:
    (folder / "one.jsonl").write_text(json.dumps(row))
    if schema is not None:
        (folder / "order.avsc").write_text(schema)
    with pytest.raises(files.NotReadable, match=says):
        files.check(folder / "one.jsonl", None, Location(Kind.KEY, (), False), folder / "order.avsc")


@pytest.mark.parametrize("identity", [{}, {"json": "/id"}])
def test_an_identity_inside_of_an_avro_value_is_refused(identity: dict[str, object], folder: Path) -> None:
    with pytest.raises(ValidationError, match=r"file\.avro: an Avro value has no place for the identity"):
        Experiment.model_validate(
            {"job": _avro_job(**identity), "workload": {"file": {"path": "in.jsonl", "avro": "order.avsc"}}, "seed": 1}
        )


ORDER: dict[str, Any] = {
    "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string", "minLength": 3}}, "required": ["city"]}},
    "type": "object",
    "required": ["customer", "amount", "at", "lines", "ship", "n", "state"],
    "properties": {
        "customer": {"type": "string", "pattern": "^C[0-9]{4}(-[A-Z]{2})?$"},
        "amount": {"type": "number", "exclusiveMinimum": 0.5, "maximum": 900},
        "price": {"type": "number", "multipleOf": 0.25, "maximum": 10},
        "n": {"type": "integer", "minimum": -5, "exclusiveMaximum": 3, "multipleOf": 2},
        "at": {"type": "string", "format": "date-time"},
        "id": {"type": "string", "format": "uuid"},
        "state": {"enum": ["new", "paid", None]},
        "note": {"type": ["string", "null"], "maxLength": 4},
        "ship": {"$ref": "#/$defs/place"},
        "bill": {"allOf": [{"$ref": "#/$defs/place"}, {"properties": {"city": {"maxLength": 5}}, "required": ["zip"]}]},
        "pay": {"oneOf": [{"type": "object", "required": ["card"], "properties": {"card": {"const": True}}}, {"type": "integer"}]},
        "lines": {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": "integer", "minimum": 1, "maximum": 9}},
        "parent": {"$ref": "#"},
    },
}


def test_rows_are_made_by_a_schema_and_all_fit_it(folder: Path) -> None:
    (folder / "order.json").write_text(json.dumps(ORDER))
    found = Workload.model_validate({"file": {"path": "order.json", "key": "customer"}, "records": 3000})
    assert found.described == "3000 records made by order.json"
    found.check(ENVELOPE)
    sent = list(workload.events(found, 7))
    assert sent == list(workload.events(found, 7)) != list(workload.events(found, 8))
    rows = [json.loads(payload) for _, payload in sent]
    assert [key for key, _ in sent] == [row["customer"] for row in rows]
    validator = jsonschema.Draft202012Validator(ORDER, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    assert [error.message for row in rows for error in validator.iter_errors(row)] == []
    for name in ("price", "note", "bill", "pay"):  # what may be missing is sometimes there, and sometimes not
        assert {name in row for row in rows} == {True, False}
    assert {row["state"] for row in rows} == {"new", "paid", None}
    assert any(row.get("note", "") is None for row in rows)


def test_as_many_rows_as_by_default_are_made_when_nobody_says_how_many(folder: Path) -> None:
    (folder / "order.json").write_text(json.dumps(ORDER))
    given = Experiment.model_validate({"strategy": "checkpoint", "workload": {"file": {"path": "order.json"}}, "seed": 1})
    assert given.workload.records == 20_000
    assert doctor.experiment_for(given, 60).workload.records == 1000


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "order.json cannot be read as a JSON Schema"),
        ('{"type": "objekt"}', r"order.json is no JSON Schema: .*objekt"),
        ('{"type": "array", "minItems": 1}', "expected the schema of an object"),
        ('{"type": "object", "properties": {"a": {"$ref": "other.json"}}, "required": ["a"]}', "a .ref to a place in the same file"),
        ('{"type": "object", "properties": {"a": {"type": "string", "not": {"minLength": 1}}}, "required": ["a"]}', "'not' asks for more"),
        ('{"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}', "nested more than 12 deep"),
        ('{"type": "object", "required": ["a"], "properties": {"a": false}}', "allows nothing"),
        ('{"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 2}}}', "no integer lies"),
        ('{"type": "object", "properties": {"a": {"type": "string"}}}', "has no key for its key"),
    ],
)
def test_a_schema_by_which_nothing_can_be_made_is_named(schema: str, says: str, folder: Path) -> None:
    (folder / "order.json").write_text(schema)
    with pytest.raises(files.NotReadable, match=says):
        files.check(folder / "order.json", "key" if "has no key" in says else None, ENVELOPE)
