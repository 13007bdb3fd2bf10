"""A matrix: every strategy meets every fault, once for each seed; one that cannot be run is refused before anything is."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamproof.errors import BadInput
from streamproof.experiment.matrix import Matrix, load
from streamproof.verdict.anomaly import Anomaly
from tests.support.checkout import ROOT

GOOD = {"strategies": ["offset_commit", "two_phase_commit"], "faults": ["kill_executor", "crash_at_step"]}


def _refusal(tmp_path: Path, text: str) -> str:
    file = tmp_path / "matrix.yaml"
    file.write_text(text)
    with pytest.raises(BadInput) as refused:
        load(file)
    return str(refused.value)


def test_the_repositorys_matrices_can_be_run() -> None:
    found = {path.stem: load(path) for path in (ROOT / "chaos" / "matrices").glob("*.yaml")}
    assert len(found["nightly"].scenarios) >= 12


def test_every_strategy_meets_every_fault_once_for_each_seed() -> None:
    scenarios = Matrix(**{**GOOD, "seeds": [3, 4]}).scenarios
    met = [(scenario.experiment.strategy, scenario.fault, scenario.experiment.seed) for scenario in scenarios]
    assert sorted(met) == sorted((s, f, seed) for s in GOOD["strategies"] for f in GOOD["faults"] for seed in (3, 4))
    assert [scenario.number for scenario in scenarios] == list(range(1, 9))
    assert len({scenario.name for scenario in scenarios}) == 8


def test_a_scenario_expects_what_its_fault_provokes() -> None:
    found = {(scenario.experiment.strategy, scenario.fault): scenario.experiment.expect for scenario in Matrix(**GOOD).scenarios}
    assert found.pop(("offset_commit", "crash_at_step")) == [Anomaly.DUPLICATED]
    assert all(expected == [] for expected in found.values())


def test_those_that_are_left_out_do_not_meet() -> None:
    scenarios = Matrix(**{**GOOD, "leave_out": [{"strategy": "offset_commit", "fault": "kill_executor"}]}).scenarios
    assert ("offset_commit", "kill_executor") not in {(scenario.experiment.strategy, scenario.fault) for scenario in scenarios}
    assert len(scenarios) == 3


def test_scenarios_that_need_three_brokers_come_last_so_that_kafka_is_made_anew_once() -> None:
    scenarios = Matrix(strategies=["two_phase_commit", "checkpoint"], faults=["kill_leader", "kill_executor"]).scenarios
    assert [scenario.experiment.brokers for scenario in scenarios] == [1, 1, 3, 3]


def test_a_quota_is_the_time_of_each_run() -> None:
    assert {scenario.experiment.timeout_s for scenario in Matrix(**{**GOOD, "quota": {"scenario_s": 77}}).scenarios} == {77}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("strategies: [hope]\nfaults: [kill_executor]", "strategies.0: there is no strategy 'hope'; there are: at_most_once"),
        ("strategies: [checkpoint]\nfaults: [meteor]", "there is no fault 'meteor'"),
        ("strategies: [checkpoint]\nfaults: []", "faults: "),
        ("strategies: [checkpoint]\nfaults: [kill_postgres]", "the matrix: checkpoint x kill_postgres: "),
        ("strategies: [checkpoint]\nfaults: [kill_executor]\nsedes: [1]", "sedes: "),
        ("strategies: [checkpoint]\nfaults: [kill_executor]\nseeds: [1, 1]", "seeds: 1 is given twice"),
        ("strategies: [checkpoint]\nfaults: [kill_executor]\nschedule: at nightly run", "schedule: expected five fields of cron"),
        ("strategies: [checkpoint]\nfaults: [kill_executor]\nquota: {scenario_s: 1}", "quota.scenario_s: "),
        ("strategies: [checkpoint]\nfaults: [{fault: crash_at_step, parameters: {stop: 1}}]", "faults.0.parameters.stop: "),
        ("strategies: [checkpoint]\nfaults: [{fault: crash_at_step, parameters: {step: after_mark}}]", "checkpoint x crash_at_step: "),
        ("strategies: [checkpoint]\nfaults: [kill_executor]\nworkload: {records: 100}\nbatch_records: 50", "too few for three phases"),
        (
            "strategies: [checkpoint]\nfaults: [kill_executor]\nleave_out: [{strategy: checkpoint, fault: kill_executor}]",
            "the matrix has 0 scenarios",
        ),
        ("[1]", "expected a mapping with `strategies` and `faults`, came list"),
    ],
)
def test_one_line_names_the_field_of_a_matrix_that_cannot_be_run(tmp_path: Path, text: str, told: str) -> None:
    refusal = _refusal(tmp_path, text)
    assert "matrix.yaml: " in refusal
    assert told in refusal


def test_a_matrix_is_read_back_as_it_was_written() -> None:
    found = Matrix(**{**GOOD, "seeds": [5]})
    assert Matrix.model_validate(found.model_dump(mode="json")) == found
