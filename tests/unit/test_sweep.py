"""The sweep's plan, and when a scenario is as predicted. Real sweeps are in tests/faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamproof import settings
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.errors import BadInput
from streamproof.experiment.schedule import plan
from streamproof.jobs.failpoint import Action, Site
from streamproof.run import sweep
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee
from tests.support.remembered import write


def test_every_step_of_every_strategy_is_crashed_in_every_way() -> None:
    single = {(scenario.strategy, scenario.step, scenario.action) for scenario in sweep.scenarios() if scenario.then is None}
    wanted = {
        (name, point.name, action)
        for name, strategy in STRATEGIES.items()
        for point in strategy.failpoints
        if point.at != Site.RECOVERY
        for action in point.actions
    }
    assert single == wanted


def test_every_scenario_is_an_experiment_that_can_be_planned() -> None:
    for scenario in sweep.scenarios():
        found = scenario.experiment(seed=4)
        assert plan(found).seed == 4
        assert found.expect == sorted(scenario.must)


def test_exactly_once_predicts_nothing_anywhere() -> None:
    for scenario in sweep.scenarios():
        if STRATEGIES[scenario.strategy].guarantee is Guarantee.EXACTLY_ONCE:
            assert not scenario.must | scenario.may


def test_there_are_negative_controls_for_both_anomalies() -> None:
    assert {anomaly for scenario in sweep.scenarios() for anomaly in scenario.must} >= {Anomaly.LOST, Anomaly.DUPLICATED}


def test_scenarios_can_be_narrowed() -> None:
    found = sweep.scenarios(["two_phase_commit"], ["after_decision"])
    assert {(scenario.action, scenario.then) for scenario in found} == {
        (Action.KILL_DRIVER, None),
        (Action.RAISE, None),
        *((Action.KILL_DRIVER, then) for first, then in STRATEGIES["two_phase_commit"].doubles if first == "after_decision"),
    }


@pytest.mark.parametrize(
    ("strategies", "steps", "told"),
    [
        (["nope"], None, "there is no strategy 'nope'; there are: at_most_once"),
        (["checkpoint"], ["after_decision"], "no strategy of the sweep has a step after_decision; their steps: after_output"),
    ],
)
def test_what_there_is_not_is_refused_before_anything_starts(strategies: list[str], steps: list[str] | None, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        sweep.scenarios(strategies, steps)


def _result(**changed: object) -> sweep.Result:
    scenario = sweep.Scenario("offset_commit", "after_output", Action.KILL_DRIVER)
    known = {"scenario": scenario, "outcome": "PASSED", "reason": "", "found": {"DUPLICATED": 5}, "as_predicted": True, "recovery_s": 1.25}
    return sweep.Result(**{**known, "torn_s": None, "tries": 1, "run": "r", **changed})  # type: ignore[arg-type]


def test_the_matrix_says_what_was_predicted_and_what_was_found() -> None:
    table = sweep.markdown([_result(), _result(as_predicted=False, found={})]).splitlines()
    assert "| offset_commit | after_output | driver | kill driver |  | DUPLICATED | 0 | 5 | 1.2 s | - | PASSED | yes |" in table
    assert table[-1].endswith("| NO |")


def test_the_compact_matrix_has_a_row_for_each_step() -> None:
    raised = _result(
        scenario=sweep.Scenario("offset_commit", "after_output", Action.RAISE), found={}, as_predicted=False, outcome="INCONCLUSIVE"
    )
    double = _result(scenario=sweep.Scenario("offset_commit", "after_output", Action.KILL_DRIVER, "after_offset_commit"), found={})
    rows = sweep.compact([_result(), raised, double]).splitlines()
    assert rows[0] == "| strategy | step | predicted | kill driver | kill worker | kill executor | raise | and a second crash |"
    assert rows[2:] == [
        "| offset_commit | `after_output` | DUPLICATED | 5 DUPLICATED |  |  | **0 / 0, INCONCLUSIVE** | `after_offset_commit`: 0 / 0 |"
    ]


def test_the_matrix_as_a_page_leads_to_the_reports_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_CACHE", str(settings.cache()))
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    write(settings.runs(), "one").report.write_text("")
    (settings.runs() / "damaged").mkdir()
    sweep.page(["one", "damaged"], tmp_path / "sweeps" / "matrix.html")
    text = (tmp_path / "sweeps" / "matrix.html").read_text()
    assert 'href="../runs/one/report.html"' in text
    assert '<figure class="chart">' in text
    assert "damaged" not in text


def test_crashes_that_may_not_be_seen_share_a_run_and_all_others_are_alone() -> None:
    found = sweep.scenarios()
    runs = sweep.grouped(found)
    assert [scenario for run in runs for scenario in run] == found
    for run in runs:
        assert len(run) <= sweep.TOGETHER
        assert len({scenario.strategy for scenario in run}) == 1
        assert len(run) == 1 or not any(scenario.must | scenario.may for scenario in run)
    assert len(sweep.grouped(sweep.scenarios(["two_phase_commit"]))) < len(sweep.scenarios(["two_phase_commit"])) / 3
    assert sweep.grouped(found, together=1) == [[scenario] for scenario in found]


def test_a_shared_run_has_each_crash_once_in_micro_batches_of_the_usual_size() -> None:
    group = sweep.grouped(sweep.scenarios(["two_phase_commit"]))[0]
    together, alone = sweep.shared(group, 1), group[0].experiment(1)
    assert [(fault.parameters["step"], fault.parameters["action"]) for fault in together.faults] == [
        (scenario.step, scenario.action) for scenario in group
    ]
    assert together.micro_batch == alone.micro_batch
    assert together.workload.records > alone.workload.records
    assert [injection.fault for injection in plan(together).injections] == ["crash_at_step"] * len(group)
