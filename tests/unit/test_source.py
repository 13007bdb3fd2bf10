"""Whether the source holds what it acknowledged: records behind its end are counted, and only those that it had acknowledged."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.histories import SentRow, write_sent
from streamproof.evidence.outcome import Outcome
from streamproof.verdict.checks import source
from tests.support.histories import BEGUN


def _folder(path: Path, ends: dict[str, int] | None) -> RunFolder:
    """Two files; partition 0 has the offsets 0 to 9, partition 1 those from 0 to 4, and a send of which nobody knows the offset."""
    folder = RunFolder.create(path)
    rows = [SentRow(0, number, 0, number, "k", 1, BEGUN, Outcome.ACKED) for number in range(10)]
    rows += [SentRow(0, 10 + number, 1, number, "k", 1, BEGUN, Outcome.ACKED) for number in range(5)]
    rows.append(SentRow(0, 15, 1, None, "k", 1, BEGUN, Outcome.INDETERMINATE))
    write_sent(folder.sent / "00000.parquet", rows[:8])
    write_sent(folder.sent / "00001.parquet", rows[8:])
    if ends is not None:
        folder.source.write_text(json.dumps({"end_offsets": ends}))
    return folder


@pytest.mark.parametrize(
    ("ends", "behind"),
    [
        ({"0": 10, "1": 5}, 0),
        ({"0": 11, "1": 6}, 0),
        ({"0": 10, "1": 4}, 1),
        ({"0": 3, "1": 0}, 7 + 5),
        ({"0": 0, "1": 0}, 15),
        ({"0": 10}, 0),
        (None, 0),
    ],
)
def test_records_behind_the_end_are_counted(tmp_path: Path, ends: dict[str, int] | None, behind: int) -> None:
    assert source.behind_the_end(_folder(tmp_path / "run", ends), {0: 10, 1: 5}) == behind


def test_statistics_that_are_not_there_hide_nothing(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "run", {"0": 9, "1": 5})
    for path in folder.sent.glob("*.parquet"):
        pq.write_table(pq.read_table(path), path, write_statistics=False)
    assert source.behind_the_end(folder, {0: 10, 1: 5}) == 1


def test_what_was_acknowledged_is_counted_by_partition(tmp_path: Path) -> None:
    assert source.acknowledged(_folder(tmp_path / "run", None)) == {0: (10, 9), 1: (5, 4)}
    empty = RunFolder.create(tmp_path / "empty")
    assert (source.acknowledged(empty), source.behind_the_end(empty, {})) == ({}, 0)


@pytest.mark.parametrize("text", ["{}", '{"end_offsets": 3}', '{"end_offsets": {"0": "x"}}', "[]"])
def test_a_damaged_end_is_no_evidence(tmp_path: Path, text: str) -> None:
    folder = _folder(tmp_path / "run", None)
    folder.source.write_text(text)
    with pytest.raises(EvidenceError, match=r"source\.json is damaged"):
        source.behind_the_end(folder, {})


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "run", {"0": 1, "1": 1})
    (folder.sent / "00001.parquet").write_bytes(b"no parquet")
    with pytest.raises(EvidenceError, match=r"00001\.parquet cannot be read"):
        source.behind_the_end(folder, {})
