"""What is written as evidence is read back as it was, and evidence that is damaged is an error, not a verdict."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamproof.evidence import histories as history
from streamproof.evidence import identity
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.outcome import Outcome
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.records import check
from tests.support.histories import Copy, Histories, Record, clean, crc_of, named


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def _intend(folder: RunFolder, producer: int, first: int, count: int) -> None:
    with folder.intents.open("a") as file:
        file.write(json.dumps({"producer": producer, "first": first, "count": count}) + "\n")


def _read(folder: RunFolder) -> tuple[history.Sent, history.Delivered]:
    return history.read_sent(folder), history.read_delivered(folder)


def test_histories_are_read_back_as_they_were_written(folder: RunFolder) -> None:
    histories = clean(20)
    histories.settle([(0, 3)], Outcome.REJECTED)
    histories.settle([(0, 4)], Outcome.INDETERMINATE)
    histories.change((0, 5), producer=None, sequence=None, crc=None)
    histories.change((0, 6), crc=None, batch=None, attempt=None, start=None)
    histories.write(folder)
    for read, made in zip(_read(folder), histories.columns(), strict=True):
        for name in made.__dataclass_fields__:
            assert getattr(read, name).tolist() == getattr(made, name).tolist(), name


def test_a_history_in_several_files_is_one(folder: RunFolder) -> None:
    histories = clean(30)
    Histories(histories.sent[:10], histories.delivered[:10]).write(folder)
    for side in (folder.sent, folder.delivered):
        (side / "00000.parquet").rename(side / "00001.parquet")
    Histories(histories.sent[10:], histories.delivered[10:]).write(folder)
    sent, delivered = _read(folder)
    assert (len(sent), len(delivered)) == (30, 30)
    assert check(sent, delivered).findings == ()


def test_no_file_at_all_is_an_empty_history(folder: RunFolder) -> None:
    assert [len(side) for side in _read(folder)] == [0, 0]


def test_an_intent_without_an_outcome_is_indeterminate_and_any_checksum_fits(folder: RunFolder) -> None:
    histories = clean(10)
    Histories(histories.sent[:6], histories.delivered).write(folder)
    _intend(folder, 0, 0, 10)
    _intend(folder, 1, 0, 5)
    sent, delivered = _read(folder)
    found = check(sent, delivered)
    assert (found.acked, found.indeterminate, found.findings) == (6, 9, ())


def test_intents_that_were_all_settled_add_nothing(folder: RunFolder) -> None:
    clean(10).write(folder)
    _intend(folder, 0, 0, 6)
    _intend(folder, 0, 6, 4)
    assert len(history.read_sent(folder)) == 10


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all" * 10])
def test_a_damaged_file_is_an_error_that_names_it(folder: RunFolder, content: bytes) -> None:
    clean(10).write(folder)
    (folder.delivered / "00001.parquet").write_bytes(content)
    with pytest.raises(EvidenceError, match=r"delivered/00001\.parquet cannot be read"):
        history.read_delivered(folder)


def test_a_file_that_was_cut_short_is_an_error_that_names_it(folder: RunFolder) -> None:
    clean(10).write(folder)
    path = folder.sent / "00000.parquet"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(EvidenceError, match=r"sent/00000\.parquet"):
        history.read_sent(folder)


def test_a_file_without_a_column_is_an_error_that_names_it(folder: RunFolder) -> None:
    pq.write_table(pa.table({"producer": [1]}), folder.sent / "00000.parquet")
    with pytest.raises(EvidenceError, match=r"sent/00000\.parquet"):
        history.read_sent(folder)


def test_every_file_carries_the_version_of_its_schema(folder: RunFolder) -> None:
    clean(1).write(folder)
    for path in (folder.sent / "00000.parquet", folder.delivered / "00000.parquet"):
        assert pq.read_schema(path).metadata[b"schema_version"] == b"1"


def test_a_record_is_indeterminate_until_the_broker_says_otherwise() -> None:
    assert history.SentRow(0, 0, 0, None, "k", 0, datetime.now(UTC)).outcome is Outcome.INDETERMINATE


@pytest.mark.parametrize("side", ["sent", "delivered"])
@pytest.mark.parametrize("name", [".00001.parquet", ".00001.parquet.part"])
def test_what_a_killed_writer_left_half_written_is_no_evidence(folder: RunFolder, side: str, name: str) -> None:
    clean(10).write(folder)
    (folder.path / side / name).write_bytes(b"PAR1half")
    sent, delivered = _read(folder)
    assert (len(sent), len(delivered)) == (10, 10)


def test_a_delivered_record_without_a_producer_is_nobodys_copy(folder: RunFolder) -> None:
    """Its unknown producer, -1, has the same bits in a key as the largest producer that there is."""
    histories = Histories([Record(identity.MAX_PRODUCER, 5, 0, 0)], [Copy(None, 5, crc_of(identity.MAX_PRODUCER, 5), 0, 0)])
    histories.write(folder)
    found = named(check(*_read(folder)).findings)
    assert found == {Anomaly.LOST: [(identity.MAX_PRODUCER, 5)], Anomaly.CORRUPTED: [(None, None)]}


@pytest.mark.parametrize("column", ["producer", "sequence"])
def test_a_record_that_was_sent_without_an_identity_is_damaged_evidence(folder: RunFolder, column: str) -> None:
    clean(10).write(folder)
    path = folder.sent / "00000.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index(column)
    pq.write_table(table.set_column(at, table.schema.field(at), [pa.nulls(len(table), table.schema.field(at).type)]), path)
    with pytest.raises(EvidenceError, match="without producer or sequence"):
        history.read_sent(folder)
