"""Records that are due more or less often than once: how an experiment says so, how they are counted, and how they are judged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from streamproof.errors import BadInput
from streamproof.evidence import expected, manifest
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.outcome import Outcome
from streamproof.experiment.model import Experiment
from streamproof.jobs.expected import ExpectedCounts
from streamproof.load.expected import NotCountable, counts
from streamproof.run.spark_check import preflight
from streamproof.run.stages import suite_spec
from streamproof.suites import agreement
from streamproof.verdict.judge import Judgement, judge
from tests.support.histories import SPEC, Copy, Story, clean, named

COUNTED = replace(SPEC, counted=True)
ORDERS = [{"id": f"o{number}", "amount": number * 10, "items": ["x"] * (number % 4)} for number in range(8)]


def events(rows: list[dict[str, Any]]) -> list[tuple[str, bytes]]:
    return [(str(number), json.dumps(row).encode()) for number, row in enumerate(rows)]


def due(**said: Any) -> list[int]:
    return counts(ExpectedCounts.model_validate(said), events(ORDERS)).tolist()


# --- how often ----------------------------------------------------------------------------------------------------------------------


def test_a_filter_says_which_records_are_to_be_delivered() -> None:
    assert due(filter="amount >= 50") == [0, 0, 0, 0, 0, 1, 1, 1]


def test_what_is_neither_true_nor_false_is_not_kept() -> None:
    rows = [{"amount": 1}, {"amount": None}, {}]
    assert counts(ExpectedCounts(filter="amount > 0"), events(rows)).tolist() == [1, 0, 0]


def test_an_explode_says_how_often() -> None:
    assert due(explode=3) == [3] * 8
    assert due(explode="len(items)") == [0, 1, 2, 3, 0, 1, 2, 3]


def test_what_is_left_out_is_not_exploded() -> None:
    assert due(explode="len(items)", filter="amount < 30") == [0, 1, 2, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("name", ["due.parquet", "due.csv"])
def test_a_table_says_how_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    table = pa.table({"id": ["o6", "o1", "unknown"], "count": [2, 1, 5]})
    if name.endswith("csv"):
        Path(name).write_text("id,count\no6,2\no1,1\nunknown,5\n")
    else:
        pq.write_table(table, name)
    assert due(table={"path": name, "count": "count"}) == [0, 1, 0, 0, 0, 0, 2, 0]
    assert due(table={"path": name}) == [0, 1, 0, 0, 0, 0, 1, 0]
    assert due(table={"path": name, "count": "count"}, explode="len(items)", filter="amount > 10") == [0, 0, 0, 0, 0, 0, 4, 0]


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"filter": "amout > 3"}, "filter: amout > 3 cannot be evaluated"),
        ({"filter": "amount"}, "filter: expected a condition, amount is 0"),
        ({"explode": "amount / 3"}, "explode: expected a whole number from 0 to 1000, came 0.0 for record 1"),
        ({"explode": "-1"}, "expected a whole number from 0 to 1000, came -1 for record 1"),
        ({"explode": "amount * 1000"}, "came 10000 for record 2"),
        ({"filter": "amount > 9999"}, "none of the records is to be delivered at all"),
        ({"filter": "(SELECT count(*) FROM read_csv('/etc/passwd')) > 0"}, "filter: (SELECT"),
        ({"table": {"path": "none.parquet"}}, "table: none.parquet cannot be used"),
        ({"table": {"path": "x.txt"}}, "expected a file whose name ends with one of .parquet, .csv"),
    ],
)
def test_what_does_not_fit_the_records_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Any, complaint: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotCountable) as refused:
        due(**said)
    assert complaint in str(refused.value)


def test_a_complaint_says_which_fields_a_record_has() -> None:
    with pytest.raises(NotCountable, match="columns of input are: id, amount, items"):
        due(filter="amout > 3")


def test_a_table_with_two_rows_for_one_record_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("due.csv").write_text("id,count\no1,1\no1,2\n")
    with pytest.raises(NotCountable, match="id 'o1' is there more than once"):
        due(table={"path": "due.csv"})


# --- an experiment ------------------------------------------------------------------------------------------------------------------


def described(**job: Any) -> dict[str, Any]:
    return {"job": {"engine": "command", "command": ["x"], "promises": "exactly-once", **job}, "workload": {"source": "synthetic"}}


@pytest.mark.parametrize(
    ("job", "complaint"),
    [
        ({"expected": {}}, "expected one of `filter`, `explode` and `table`"),
        ({"expected": {"explode": 0}}, "explode"),
        ({"expected": {"explode": 2}, "also_promises": ["ordered"]}, "jobs that deliver each record once"),
    ],
)
def test_an_experiment_that_contradicts_itself_is_refused(job: Any, complaint: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Experiment.model_validate(described(**job))
    assert complaint in str(refused.value)


def test_what_is_judged_of_whole_batches_cannot_be_expected_of_such_a_job() -> None:
    with pytest.raises(ValidationError, match="TORN is judged of jobs that deliver each record once"):
        Experiment.model_validate({**described(expected={"explode": 2}), "expect": ["TORN"]})


def test_copies_are_counted_and_that_is_said() -> None:
    job = described(expected={"explode": 2})
    assert any("they are counted" in what for what in Experiment.model_validate(job).profile.not_judged)
    job = described(expected={"filter": "amount > 3"})
    assert not any("they are counted" in what for what in Experiment.model_validate(job).profile.not_judged)


def test_spark_does_not_judge_such_a_run() -> None:
    with pytest.raises(BadInput, match="without --spark"):
        preflight("local[1]", stateful=False, counted=True)


# --- the verdict --------------------------------------------------------------------------------------------------------------------


def judged(story: Story, path: Path, due_by_sequence: list[int]) -> tuple[RunFolder, Judgement]:
    """Both judges must name the same records."""
    folder = story.write(path)
    expected.write(folder, np.array(due_by_sequence))
    manifest.write(folder)
    judgement = judge(folder, COUNTED)
    assert agreement.check(folder, suite_spec(COUNTED), judgement.table) is None
    return folder, judgement


def test_what_is_left_out_and_what_is_split_passes(tmp_path: Path) -> None:
    story = Story()
    story.histories.drop([(0, 4), (0, 5)])
    story.histories.double([(0, 7)], times=2)
    due_by_sequence = [1] * 60
    due_by_sequence[4] = due_by_sequence[5] = 0
    due_by_sequence[7] = 3
    _, judgement = judged(story, tmp_path / "run", due_by_sequence)
    assert judgement.verdict.outcome == "PASSED", judgement.verdict.reason
    assert judgement.verdict.due == 60


def test_each_way_to_be_wrong_is_named_with_how_often_it_was_due(tmp_path: Path) -> None:
    story = Story()
    story.histories.double([(0, 7), (0, 8), (0, 9)])
    story.histories.settle([(0, 10), (0, 11)], Outcome.INDETERMINATE)
    story.histories.drop([(0, 11)])
    due_by_sequence = [1] * 60
    due_by_sequence[4] = 0  # is there
    due_by_sequence[7] = 3  # is there twice
    due_by_sequence[8] = 2  # is there twice
    due_by_sequence[10] = 2  # is there once, so it is in the topic
    due_by_sequence[11] = 2  # is not there, and may not be in the topic
    _, judgement = judged(story, tmp_path / "run", due_by_sequence)
    found = named(judgement.findings)
    assert {str(anomaly): ids for anomaly, ids in found.items()} == {"LOST": [(0, 10), (0, 7)], "DUPLICATED": [(0, 9)], "PHANTOM": [(0, 4)]}
    blame = {row["sequence"]: row["blame"] for row in judgement.table.to_pylist() if row["row"] == "record"}
    assert "was acknowledged but delivered 2 times, not 3" in blame[7]
    assert "was delivered 1 times, not 2" in blame[10]
    assert "was delivered although it was not to be" in blame[4]


def test_in_a_producer_that_sends_again_a_sequence_is_due_as_often(tmp_path: Path) -> None:
    story = Story(histories=clean(40, 20))
    story.histories.drop([(0, 3), (1, 3)])
    due_by_sequence = [1] * 40
    due_by_sequence[3] = 0
    _, judgement = judged(story, tmp_path / "run", due_by_sequence)
    assert not judgement.findings


def test_a_record_that_nobody_sent_is_a_phantom_still(tmp_path: Path) -> None:
    story = Story()
    story.histories.delivered.append(Copy(9, 9, 9, 0, 200))
    _, judgement = judged(story, tmp_path / "run", [1] * 60)
    assert named(judgement.findings) == {"PHANTOM": [(9, 9)]}


@pytest.mark.parametrize("damage", ["gone", "short", "negative", "not a table"])
def test_a_file_that_is_damaged_is_no_evidence(tmp_path: Path, damage: str) -> None:
    folder, _ = judged(Story(), tmp_path / "run", [1] * 60)
    if damage == "gone":
        folder.expected.unlink()
    elif damage == "not a table":
        folder.expected.write_bytes(b"PAR1")
    else:
        expected.write(folder, np.array([1] * 59 if damage == "short" else [1] * 59 + [-1]))
    manifest.write(folder)
    with pytest.raises(EvidenceError, match=r"expected\.parquet"):
        judge(folder, COUNTED)


def test_a_file_that_the_run_does_not_know_of_is_no_evidence(tmp_path: Path) -> None:
    folder, _ = judged(Story(), tmp_path / "run", [1] * 60)
    with pytest.raises(EvidenceError, match="does not belong to this run"):
        judge(folder, SPEC)
