"""A user's own suite: refused by name when it cannot be used, and told apart from what is expected of the delivery."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamproof.errors import BadInput
from streamproof.evidence import manifest
from streamproof.evidence.folder import RunFolder, write_atomically
from streamproof.evidence.payloads import PAYLOADS, write_payloads
from streamproof.experiment import reading
from streamproof.experiment.model import Experiment
from streamproof.report.report import render
from streamproof.run import stages
from streamproof.run.second_judge import disagreement_with, own_suite
from streamproof.suites import own
from streamproof.suites.evaluate import Evaluation, evaluate
from streamproof.verdict.decide import RunOutcome, decide
from streamproof.verdict.ending import Ending
from streamproof.verdict.judge import judge
from streamproof.verdict.verdict import Verdict, decided, ending
from tests.support.checkout import ROOT
from tests.unit.test_expectations import CLEAN, T0, tell

VALUES = [
    b'{"id":"0000-000000000000-00000000-00000000","payload":{"origin":"EWR","delay":3},"source":{"partition":0,"offset":0}}',
    b'{"id":"0000-000000000001-00000000-00000000","payload":{"origin":"JFK","delay":-2,"tags":["a"]},"source":{}}',
    b'{"key":"LGA","count":2}',
    b"no JSON",
]


def _suite(*expectations: dict[str, Any], name: str = "mine") -> dict[str, Any]:
    return {"name": name, "expectations": list(expectations)}


def _expect(kind: str, **kwargs: Any) -> dict[str, Any]:
    return {"type": kind, "kwargs": kwargs}


IN_SET = _expect("expect_column_values_to_be_in_set", column="origin", value_set=["EWR", "JFK"])
TOO_HIGH = _expect("expect_column_values_to_be_between", column="delay", min_value=0)
NOT_THERE = _expect("expect_column_values_to_not_be_null", column="nowhere")


def _run(path: Path, suite: dict[str, Any] | None, values: list[bytes] = VALUES) -> RunFolder:
    folder = tell(path / "run-1", CLEAN)
    folder.payloads.mkdir()
    rows = [(0, number, 7, 0, 1, T0, b"k", value) for number, value in enumerate(values)]
    write_payloads(folder.payloads, 0, {name: [row[at] for row in rows] for at, name in enumerate(PAYLOADS.names)})
    if suite is not None:
        write_atomically(own.path(folder), json.dumps(suite))
    manifest.write(folder)
    return folder


def test_the_columns_are_the_fields_of_the_payload_and_where_it_came_from(tmp_path: Path) -> None:
    frame = own.columns(_run(tmp_path, None))
    assert list(frame.columns) == ["origin", "delay", "tags", "key", "count", "_partition", "_offset", "_batch", "_start", "_key"]
    assert frame["origin"].tolist()[:2] == ["EWR", "JFK"]
    assert frame["tags"].tolist()[1] == '["a"]'
    assert frame["count"].tolist()[2] == 2
    assert (frame["_batch"] == 7).all()


def _with_own(verdict: Verdict, evaluation: Evaluation) -> Verdict:
    return decided(verdict.model_copy(update={"suite": own_suite(evaluation)}))


def test_a_suite_that_holds_leaves_the_verdict(tmp_path: Path) -> None:
    folder = _run(tmp_path, _suite(IN_SET))
    verdict, evaluation = Verdict.read(folder), evaluate(folder)
    assert (evaluation.own_suite, [result.success for result in evaluation.own], evaluation.errors) == ("own: mine", [True], [])
    assert disagreement_with(decide(verdict.facts(Ending())), evaluation) == (None, None)
    found = _with_own(verdict, evaluation).to_json()
    assert (found["outcome"], found["suite"]["failed"]) == ("PASSED", [])
    assert {**found, "suite": None} == verdict.to_json()


def test_an_expectation_that_does_not_hold_makes_the_run_failed_and_is_named(tmp_path: Path) -> None:
    folder = _run(tmp_path, _suite(IN_SET, {**TOO_HIGH, "description": "No flight leaves early"}, TOO_HIGH))
    verdict, evaluation = Verdict.read(folder), evaluate(folder)
    assert evaluation.success, "it is no part of what is expected of the delivery"
    assert disagreement_with(decide(verdict.facts(Ending())), evaluation) == (None, None)
    found = _with_own(verdict, evaluation).to_json()
    assert (found["outcome"], found["as_expected"]) == ("FAILED", False)
    assert found["reason"] == (
        "own: mine: No flight leaves early does not hold (1 of 4 values are not as expected, for instance -2.0); "
        "expect_column_values_to_be_between(column='delay', min_value=0.0) does not hold "
        "(1 of 4 values are not as expected, for instance -2.0)"
    )
    assert found["suite"] == {
        "name": "own: mine",
        "expectations": 3,
        "failed": ["No flight leaves early", "expect_column_values_to_be_between(column='delay', min_value=0.0)"],
        "failures": found["reason"].removeprefix("own: mine: ").split("; "),
        "outcome": "PASSED",
        "reason": verdict.reason,
    }
    assert _with_own(Verdict.from_json(found), evaluation).to_json() == found, "the stage may be repeated"


def test_an_expectation_that_cannot_be_evaluated_is_an_error_and_neither_failed_nor_passed(tmp_path: Path) -> None:
    folder = _run(tmp_path, _suite(NOT_THERE))
    evaluation = evaluate(folder)
    conflict, not_evaluated = disagreement_with(decide(Verdict.read(folder).facts(Ending())), evaluation)
    assert conflict is None
    assert "expect_column_values_to_not_be_null(column='nowhere')" in str(not_evaluated)
    stages.expect(folder)
    assert Verdict.read(folder).outcome is RunOutcome.ERROR
    assert "nowhere" in evaluation.own[0].observed


def test_the_pages_and_the_report_show_both_groups_apart(tmp_path: Path) -> None:
    folder = _run(tmp_path, _suite(IN_SET, TOO_HIGH))
    evaluation = evaluate(folder)
    index = (folder.path / evaluation.data_docs).read_text()
    assert "<h2>exactly-once</h2>" in index
    assert "<h2>own: mine</h2>" in index
    assert len(list((folder.expectations / "data_docs").glob("validations/**/*.html"))) == 2
    for page in ("Validation result: exactly-once", "Validation result: own: mine", "Expectation suite: own: mine"):
        address = index.split(f">{page}<")[0].rsplit('href="', 1)[1].split('"')[0]
        assert (folder.expectations / "data_docs" / address).is_file()
    assert "<h3>own: mine</h3>" in render(folder).read_text()


def test_a_step_that_expects_writes_what_the_suite_says_and_may_be_repeated(tmp_path: Path) -> None:
    folder = _run(tmp_path, _suite(TOO_HIGH))
    stages.expect(folder)
    first = folder.read_json(folder.verdict)
    stages.expect(folder)
    assert first["outcome"] == "FAILED"
    assert folder.read_json(folder.verdict) == first
    stored = Verdict.read(folder)
    again = decided(judge(folder, CLEAN.spec).verdict.with_expectations(stored), ending(folder, stored))
    assert (again.outcome, again.reason) == ("FAILED", first["reason"]), "a run that is checked again has its suite's results"


# --- expectations of the project's own ------------------------------------------------------------------------------------------------


def test_the_projects_own_expectation_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``chaos/plausible-flights.yaml`` has it: the suite and the expectation are files of the project."""
    monkeypatch.setenv("STREAMPROOF_PROJECT", str(ROOT))
    monkeypatch.chdir(tmp_path)
    experiment = stages.load(RunFolder(_experiment_folder(tmp_path, ROOT / "chaos" / "plausible-flights.yaml")))
    assert experiment.suite is not None
    stages.check_suite(experiment)
    folder = _run(tmp_path, experiment.suite.document(), [_flight(EWR, 3, -5), _flight(EWR, 1441, 2)])
    evaluation = evaluate(folder)
    assert evaluation.errors == []
    told = "No flight is more than two hours early, or more than a day late."
    assert [(result.description, result.success) for result in evaluation.own] == [
        ("Every flight leaves from New York.", True),
        ("Every flight has a number.", True),
        (told, False),
        (told, True),
    ]
    assert evaluation.own[2].observed == "1 of 2 values are not as expected, for instance 1441"


def test_a_file_that_does_not_define_its_expectation_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_PROJECT", str(tmp_path))
    (tmp_path / "expectations").mkdir()
    (tmp_path / "expectations" / "expect_miracle.py").write_text("")
    with pytest.raises(own.SuiteError, match=r"expect_miracle\.py defines no expectation 'expect_miracle'"):
        own.check(_suite(_expect("expect_miracle")))


EWR = "EWR"


def _flight(origin: str, dep_delay: int, arr_delay: int) -> bytes:
    return json.dumps({"payload": {"origin": origin, "flight": 7, "dep_delay": dep_delay, "arr_delay": arr_delay}}).encode()


def _experiment_folder(path: Path, experiment: Path) -> Path:
    folder = RunFolder(path / "experiment")
    folder.path.mkdir()
    folder.experiment.write_text(experiment.read_text())
    return folder.path


# --- before anything is started ---------------------------------------------------------------------------------------------------


def _experiment(suite: Any) -> Experiment:
    return reading.parse({"strategy": "two_phase_commit", "suite": suite}, "experiment.yaml", Experiment)


@pytest.mark.parametrize(
    ("suite", "told"),
    [
        (_suite(_expect("expect_nothing")), "expectations.0: there is no expectation 'expect_nothing' in Great Expectations"),
        (_suite(IN_SET, _expect("expect_column_values_to_be_between", min_value=1)), "expectations.1: .*between: column: field required"),
        (_suite(_expect("expect_column_values_to_be_unique", column="a", colum="b")), "colum: extra fields not permitted"),
        (_suite(_expect("unexpected_rows_expectation", unexpected_rows_query="SELECT 1 FROM {batch}")), "it is SQL|is SQL"),
    ],
)
def test_a_suite_that_cannot_be_used_is_refused_before_a_run_is_made(
    suite: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    with pytest.raises(BadInput, match=told):
        stages.create(_experiment(suite))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("suite", "told"),
    [
        ({"expectations": []}, "suite.expectations"),
        ({"expectations": [{"kwargs": {}}]}, "suite.expectations.0.type"),
        ({"expectations": [{**IN_SET, "column": "a"}]}, "suite.expectations.0.column"),
        ("/nowhere/suite.yaml", "suite: /nowhere/suite.yaml cannot be read"),
        (7, "suite"),
    ],
)
def test_what_is_no_suite_is_refused_by_its_field(suite: Any, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        _experiment(suite)


@pytest.mark.parametrize("name", ["suite.yaml", "suite.json"])
def test_a_suite_may_lie_in_a_file_and_goes_with_the_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    (tmp_path / name).write_text(json.dumps({**_suite(IN_SET), "meta": {"great_expectations_version": "1.24.1"}, "id": "x"}))
    found = _experiment(str(tmp_path / name))
    folder = stages.create(found, "run")
    (tmp_path / name).unlink()
    assert stages.load(folder).suite == found.suite
    assert folder.read_json(own.path(folder)) == _suite(IN_SET)
    assert found.keeps_values


@pytest.mark.parametrize("given", ["60", "0s", "one minute", 60, "90000s"])
def test_a_time_to_recover_is_in_seconds(given: Any) -> None:
    with pytest.raises(BadInput, match="recover_within: expected a time of at most 86400s as in '60s'"):
        reading.parse({"strategy": "checkpoint", "recover_within": given}, "experiment.yaml", Experiment)
