"""Outcomes are written down while they come: what a killed generator knew is in its stream, whole up to the tear."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streamproof.evidence import histories
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.histories import SentRow
from streamproof.evidence.outcome import Outcome
from streamproof.evidence.sent_stream import SentStream, fold_all
from streamproof.load.workload import Sender, settled

SENT_AT = datetime(2026, 1, 1, tzinfo=UTC)


def _rows(first: int, count: int) -> list[SentRow]:
    return [
        SentRow(0, number, number % 2, number // 2, f"k{number}", number, SENT_AT, Outcome.ACKED) for number in range(first, first + count)
    ]


def _left_by_a_killed_writer(folder: RunFolder, chunks: int, count: int = 20) -> Path:
    """The stream of a writer that never ended it."""
    stream = SentStream(folder.sent / "00000.arrows")
    for number in range(chunks):
        stream.append(_rows(number * count, count))
    stream._file.flush()
    return stream.path


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def test_what_a_killed_generator_knew_is_known_to_the_next_one(folder: RunFolder) -> None:
    _left_by_a_killed_writer(folder, 3)
    folder.intents.write_text('{"producer":0,"first":0,"count":80}\n')
    sender = Sender(folder, "127.0.0.1:1", "topic")
    assert (sender.number, sender.reached) == (1, 80)
    assert settled(folder) == {Outcome.ACKED: 60, Outcome.REJECTED: 0, Outcome.INDETERMINATE: 20}
    assert [path.name for path in sorted(folder.sent.iterdir())] == ["00000.parquet", "intents.jsonl"]


def test_a_torn_stream_counts_up_to_the_tear(folder: RunFolder, tmp_path: Path) -> None:
    whole = _left_by_a_killed_writer(folder, 3).read_bytes()
    for size in range(0, len(whole), 97):
        torn = RunFolder.create(tmp_path / str(size))
        (torn.sent / "00000.arrows").write_bytes(whole[:size])
        fold_all(torn.sent)
        found = [row["sequence"] for path in histories.files(torn.sent) for row in pq.read_table(path).to_pylist()]
        assert found == list(range(len(found)))
        assert len(found) % 20 == 0, "a chunk counts as a whole"
        assert len(found) <= 60 * size / len(whole) + 20


def test_a_stream_that_was_folded_before_its_writer_died_is_not_folded_again(folder: RunFolder) -> None:
    stream = _left_by_a_killed_writer(folder, 2)
    content = stream.read_bytes()
    fold_all(folder.sent)
    before = (folder.sent / "00000.parquet").read_bytes()
    stream.write_bytes(content)
    fold_all(folder.sent)
    assert (folder.sent / "00000.parquet").read_bytes() == before
    assert not stream.exists()


def test_the_folded_file_is_the_one_that_would_have_been_written_at_once(folder: RunFolder, tmp_path: Path) -> None:
    stream = SentStream(folder.sent / "00000.arrows")
    stream.append(_rows(0, 20))
    stream.append([])
    stream.append(_rows(20, 5))
    stream.fold()
    histories.write_sent(tmp_path / "once.parquet", _rows(0, 25))
    assert pq.read_table(folder.sent / "00000.parquet").equals(pq.read_table(tmp_path / "once.parquet"))
