"""Real sweeps: a run for each crash. Without ``slow``: one step of two-phase commit on Kafka, crashed in the hardest way there is: where
everything must stay."""

from __future__ import annotations

import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from streamproof import settings
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import FailpointFired
from streamproof.experiment.model import Experiment, FaultSpec
from streamproof.jobs.failpoint import Action, Site
from streamproof.load.spec import Source, Workload
from streamproof.run import runner, sweep
from streamproof.testbed.embedded import Testbed
from tests.support.checkout import ROOT

QUICK = "two_phase_commit"
QUICK_STEPS = ("between_commits",)
RECORDS_A_STEP, BATCHES_A_STEP = 960, 8


def _name(scenario: sweep.Scenario) -> str:
    return "-".join(filter(None, (scenario.strategy, scenario.step, scenario.action, scenario.then)))


def _hardest(scenario: sweep.Scenario) -> bool:
    return scenario.then is None and scenario.action == (Action.KILL_WORKER if scenario.failpoint.at == Site.TASK else Action.KILL_DRIVER)


SCENARIOS = [pytest.param(scenario, id=_name(scenario), marks=pytest.mark.slow) for scenario in sweep.scenarios()]


@pytest.mark.timeout(960)
@pytest.mark.parametrize(
    ("strategy", "steps"),
    [
        pytest.param(QUICK, QUICK_STEPS, id=f"{QUICK}-some"),
        pytest.param(QUICK, None, id=QUICK, marks=pytest.mark.slow),
        pytest.param("offset_in_transaction", None, id="offset_in_transaction", marks=pytest.mark.slow),
    ],
)
def test_a_job_that_crashes_at_one_step_after_the_other_is_exactly_once(
    testbed: Testbed, strategy: str, steps: tuple[str, ...] | None
) -> None:
    scenarios = [scenario for scenario in sweep.scenarios([strategy]) if _hardest(scenario) and (not steps or scenario.step in steps)]
    crashes = [
        FaultSpec(
            fault="crash_at_step",
            at=round(0.1 + 0.75 * number / len(scenarios), 2),
            parameters={"step": scenario.step, "action": scenario.action},
        )
        for number, scenario in enumerate(scenarios)
    ]
    folder = runner.run(
        Experiment(
            name="each-step",
            strategy=strategy,
            workload=Workload(source=Source.SYNTHETIC, records=len(scenarios) * RECORDS_A_STEP),
            faults=crashes,
            seed=5,
            batch_records=RECORDS_A_STEP // BATCHES_A_STEP,
            timeout_s=900,  # it starts anew after most of them
        )
    )
    verdict = folder.read_json(folder.verdict)
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert not any(verdict["anomalies"].values()), verdict["anomalies"]
    assert all(check["passed"] for injection in verdict["injections"] for check in injection["evidence"])
    assert [event.failpoint for event in folder.journal.all(FailpointFired)] == [scenario.step for scenario in scenarios]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_crash_shows_what_the_strategy_predicts(testbed: Testbed, scenario: sweep.Scenario) -> None:
    result = sweep.attempt(scenario, seed=5)
    assert result.as_predicted, result.to_dict()
    assert _unexplained(result) == [], "what the crash broke is not traced back to it"
    if STRATEGIES[scenario.strategy].atomic:
        assert result.torn_s is not None, "nobody watched the batches become visible"


def _unexplained(result: sweep.Result) -> list[str]:
    """The blame of those lost and doubled records that does not name the injection."""
    folder = RunFolder(settings.runs() / result.run)
    rows = [row for row in pq.read_table(folder.reconciliation).to_pylist() if row["anomaly"] in ("LOST", "DUPLICATED")]
    return [row["blame"] for row in rows if row["row"] == "record" and "during crash_at_step-1, " not in row["blame"]]


@pytest.mark.slow
def test_a_wrong_prediction_is_noticed(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep's own negative control: a strategy that denies what its crash shows."""
    strategy = STRATEGIES["checkpoint"]
    (honest,) = strategy.failpoints
    monkeypatch.setattr(type(strategy), "failpoints", (type(honest)(honest.name, honest.at, honest.window),))
    (scenario,) = sweep.scenarios(["checkpoint"])
    result = sweep.attempt(scenario, seed=5)
    assert result.outcome == "PASSED", "at-least-once allows what was found"
    assert result.found["DUPLICATED"] > 0
    assert not result.as_predicted


@pytest.mark.slow
def test_the_example_of_the_documentation_is_swept_like_any_other(testbed: Testbed) -> None:
    command = [sys.executable, "-m", "streamproof.cli.main", "sweep", "foreach_batch", "--seed", "5"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "2 of 2 as predicted" in answer.stdout
