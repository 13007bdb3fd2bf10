"""The second opinion: the same answer by other means, and an ERROR when it is another."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from streamproof.evidence.folder import RunFolder, read_json_lines
from streamproof.evidence.outcome import Outcome
from streamproof.verdict import second_opinion
from streamproof.verdict.anomaly import RESULT_KINDS, Anomaly
from streamproof.verdict.guarantee import Promise
from streamproof.verdict.judge import judge
from tests.mutation.run import FIXTURES
from tests.support.histories import TERMS, Copy, Histories, Story, clean

ALL = replace(TERMS, promises=frozenset(Promise))


def _found(folder: RunFolder) -> Counter[second_opinion.Named]:
    return second_opinion.find(folder, tuple(set(Anomaly) - set(RESULT_KINDS)), list(read_json_lines(folder.progress)))


def _story() -> Story:
    """Each anomaly once."""
    story = Story(histories=clean(60, partitions=1))
    histories = story.histories
    for line in story.progress:
        line["from"] = {"0": line["batch"] * 15}
        line["until"] = {"0": line["batch"] * 15 + 15}
    histories.delivered = [replace(copy, batch=copy.offset // 15) for copy in histories.delivered]
    histories.drop([(0, 20)])
    histories.double([(0, 31)])
    histories.change((0, 40), crc=7)
    histories.settle([(0, 50)], Outcome.REJECTED)
    histories.delivered.append(Copy(9, 9, 9, 0, 200, batch=None, attempt=None, start=None))
    histories.delivered.append(Copy(None, None, None, 0, 201, batch=None, attempt=None, start=None))
    return story


def test_it_finds_each_anomaly_by_itself(tmp_path: Path) -> None:
    folder = _story().write(tmp_path / "run")
    found = _found(folder)
    assert {each for each in found if each[0] not in ("AHEAD", "REORDERED")} == {
        ("LOST", 0, 20),
        ("DUPLICATED", 0, 31),
        ("CORRUPTED", 0, 40),
        ("CORRUPTED", None, None),
        ("PHANTOM", 0, 50),
        ("PHANTOM", 9, 9),
        ("TORN", 1, 1),
    }


def test_it_agrees_with_the_checkers(tmp_path: Path) -> None:
    verdict = judge(_story().write(tmp_path / "run"), ALL).verdict.to_json()
    assert verdict["outcome"] == "FAILED", verdict["reason"]


def test_it_tells_on_a_checker_that_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproof.verdict.judge.torn", lambda *_: [])
    verdict = judge(_story().write(tmp_path / "run"), ALL).verdict.to_json()
    assert verdict["outcome"] == "ERROR"
    assert "only the second opinion names TORN 1/1" in verdict["reason"]


def test_it_agrees_on_a_real_run() -> None:
    folder = RunFolder(FIXTURES / "two-phase-commit-killed-between-commits")
    assert _found(folder) == Counter()


def test_it_agrees_on_a_run_without_any_record(tmp_path: Path) -> None:
    folder = Story(histories=Histories()).write(tmp_path / "run")
    for directory in (folder.sent, folder.delivered):
        for path in directory.glob("*.parquet"):
            path.unlink()
    assert _found(folder) == Counter()


def test_it_knows_what_was_intended(tmp_path: Path) -> None:
    story = Story()
    story.histories.sent = story.histories.sent[:-1]
    story.histories.double([(0, 59)])
    folder = story.write(tmp_path / "run")
    folder.intents.write_text('{"producer":0,"first":0,"count":60}\n')
    assert _found(folder) == Counter({("DUPLICATED", 0, 59): 1})


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (Counter({("LOST", 0, 5): 1}), "only the checker names LOST 0/4; only the second opinion names LOST 0/5"),
        (Counter(), "only the checker names LOST 0/4"),
        (Counter({("LOST", 0, 4): 1, ("PHANTOM", 7, 7): 1}), "only the second opinion names PHANTOM 7/7"),
        (Counter({("LOST", 0, 4): 1, ("CORRUPTED", None, None): 5}), "names CORRUPTED None/None and 4 more"),
    ],
)
def test_a_run_on_which_the_two_do_not_agree_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: Counter[second_opinion.Named], said: str
) -> None:
    story = Story()
    story.histories.drop([(0, 4)])
    monkeypatch.setattr(second_opinion, "find", lambda *_: second)
    verdict = judge(story.write(tmp_path / "run"), TERMS).verdict.to_json()
    assert (verdict["outcome"], verdict["as_expected"]) == ("ERROR", False)
    assert verdict["reason"].startswith("the checker and the second opinion do not agree: ")
    assert said in verdict["reason"]


def test_duckdb_is_not_imported_before_it_is_asked() -> None:
    command = "import sys, streamproof.run.stages, streamproof.verdict.judge; sys.exit('duckdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", command], timeout=60, check=False).returncode == 0
