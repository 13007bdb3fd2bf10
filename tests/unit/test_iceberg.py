"""An Iceberg table as output: real tables, written by pyiceberg; the drain reads their metadata by itself, and pyiceberg is the second
reader."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from streamproof.engines.command.job import CommandSpec
from streamproof.evidence.folder import EvidenceError
from streamproof.sinks.iceberg import metadata
from streamproof.sinks.iceberg.metadata import path_of
from streamproof.sinks.iceberg.rows import newest
from streamproof.sinks.iceberg.table import contents, files_again
from streamproof.sinks.lakehouse.table import File, read
from streamproof.verdict.guarantee import Promise

SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("streamproof")
    yield catalog.create_table("streamproof.delivered", schema=SCHEMA)
    catalog.close()


def _rows(*values: int) -> pa.Table:
    return pa.table({"key": [b"k"] * len(values), "value": [b"%d" % value for value in values]}, schema=SCHEMA)


def _append(table: Table, epoch: int, *values: int) -> None:
    table.append(_rows(*values), snapshot_properties={metadata.QUERY: "the-query", metadata.EPOCH: str(epoch)})


def _files(table: Table) -> list[File]:
    """The files as the drain finds them; the second reader must find the same, with the same times."""
    current = path_of(table.metadata_location)
    found = contents(current)
    assert {file.path: file.written_ms for file in found.files} == files_again(current)
    return list(found.files)


def _values(files: list[File]) -> list[int]:
    return sorted(int(value) for file in files for value in read(file.path)["value"].to_pylist())


def test_what_the_newest_snapshot_holds_is_found_and_each_file_says_which_epoch_brought_it(table: Table) -> None:
    assert _files(table) == []
    for epoch in range(3):
        _append(table, epoch, 10 * epoch, 10 * epoch + 1)
    files = _files(table)
    assert _values(files) == [0, 1, 10, 11, 20, 21]
    assert {file.told for file in files} == {f"snapshot {epoch + 1}, append, epoch {epoch} of the-query" for epoch in range(3)}
    end = table.current_snapshot()
    assert end is not None
    assert contents(path_of(table.metadata_location)).end == [end.snapshot_id, end.timestamp_ms]


def test_nobody_is_there_before_a_table_is(tmp_path: Path) -> None:
    found = contents(None)
    assert (list(found.files), found.end, found.versions) == ([], None, 0)
    assert files_again(None) == {}


def test_what_was_deleted_or_overwritten_is_no_delivery_any_more(table: Table) -> None:
    for epoch in range(3):
        _append(table, epoch, 10 * epoch, 10 * epoch + 1)
    table.delete(EqualTo("value", b"10"))  # the file is written anew with its other row
    assert _values(_files(table)) == [0, 1, 11, 20, 21]
    table.overwrite(_rows(7))
    assert _values(_files(table)) == [7]


def test_a_table_that_was_rolled_back_holds_what_it_held_then(table: Table) -> None:
    for epoch in range(3):
        _append(table, epoch, epoch)
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    assert _values(_files(table)) == [0]
    _append(table, 1, 5)
    assert _values(_files(table)) == [0, 5]
    assert contents(path_of(table.metadata_location)).versions == 2


def test_what_an_expired_snapshot_brought_is_there_and_nobody_knows_who_brought_it(table: Table) -> None:
    for epoch in range(3):
        _append(table, epoch, epoch)
    ids = [snapshot.snapshot_id for snapshot in table.snapshots()]
    table.maintenance.expire_snapshots().by_ids(ids[:2]).commit()
    files = _files(table)
    assert _values(files) == [0, 1, 2]
    told = sorted(file.told for file in files)
    assert told[0] == "snapshot 3, append, epoch 2 of the-query"
    assert all("which has expired" in each for each in told[1:])


@pytest.mark.parametrize("damaged", ["manifest list", "manifest", "metadata", "data"])
def test_a_damaged_table_is_an_error_that_names_the_file(table: Table, damaged: str) -> None:
    _append(table, 0, 1, 2)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(table.io)
    (file,) = contents(path_of(table.metadata_location)).files
    paths = {
        "manifest list": path_of(snapshot.manifest_list),
        "manifest": path_of(manifest.manifest_path),
        "metadata": path_of(table.metadata_location),
        "data": file.path,
    }
    path = paths[damaged]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(EvidenceError, match=path.name):
        _values(list(contents(path_of(table.metadata_location)).files))


def test_a_snapshot_that_deletes_rows_of_files_is_refused_and_not_read_short(table: Table, tmp_path: Path) -> None:
    _append(table, 0, 1, 2)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    path = path_of(snapshot.manifest_list)
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        schema, records = reader.writer_schema, list(reader)
    copy = tmp_path / "list.avro"
    with copy.open("wb") as file:
        fastavro.writer(file, schema, [{**record, "content": metadata.DELETES} for record in records])  # type: ignore[dict-item]
    shutil.move(copy, path)
    with pytest.raises(EvidenceError, match="deletes rows of files"):
        contents(path_of(table.metadata_location))


def test_a_table_that_is_its_own_catalog_is_found_by_its_highest_version(tmp_path: Path) -> None:
    folder = tmp_path / "shop" / "orders"
    assert newest(folder) is None
    (folder / "metadata").mkdir(parents=True)
    for name in ("v2.metadata.json", "v10.metadata.json", "v9.metadata.json", "0b5c.metadata.json", "v11.metadata.json.crc"):
        (folder / "metadata" / name).touch()
    (folder / "metadata" / "version-hint.text").write_text("9")
    assert newest(folder) == folder / "metadata" / "v10.metadata.json"


def test_a_job_says_that_it_delivers_into_a_folder_that_is_its_own_catalog() -> None:
    described = {"command": ["./job"], "promises": "exactly-once"}
    delivers = {"iceberg_folder": {"table": "shop.orders", "identity": {"column": "id"}}}
    spec = CommandSpec.model_validate({"engine": "command", **described, "delivers": delivers})
    assert spec.profile.sink == "iceberg_folder_rows"
    assert spec.profile.links == {"kafka"}
    assert spec.profile.promises == {Promise.MONOTONIC}


def test_a_job_says_that_it_delivers_there() -> None:
    described = {"command": ["./job"], "promises": "exactly-once"}
    delivers = {"iceberg": {"table": "shop.orders", "identity": {"column": "id"}}}
    spec = CommandSpec.model_validate({"engine": "command", **described, "delivers": delivers})
    assert spec.profile.sink == "iceberg_rows"
    with pytest.raises(ValueError, match=r"delivers\.iceberg\.table"):
        CommandSpec.model_validate({"engine": "command", **described, "delivers": {"iceberg": {**delivers["iceberg"], "table": "orders"}}})
