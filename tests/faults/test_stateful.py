"""Stateful jobs under real faults: what they deliver is what is computed again, and a job that is broken on purpose is found out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.experiment.model import Experiment, FaultSpec, Stateful
from streamproof.load.spec import Source, Workload
from streamproof.run import runner
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.anomaly import RESULT_KINDS, Anomaly

RECORDS, BATCH = 4000, 400
WINDOW, JOIN = "departures", "departures_with_weather"
DECLARED = Stateful(delay_min=1440, disorder_min=1200, late_share=0.02)
TOO_SMALL = DECLARED.model_copy(update={"job_delay_min": 60})


def _run(
    pipeline: str,
    strategy: str,
    *faults: FaultSpec,
    stateful: Stateful = DECLARED,
    expect: tuple[Anomaly, ...] = (),
) -> dict[str, Any]:
    """The verdict of a run whose expectations agree with it."""
    folder: RunFolder = runner.run(
        Experiment(
            name="stateful",
            pipeline=pipeline,
            strategy=strategy,
            workload=Workload(source=Source.FLIGHTS, records=RECORDS),
            stateful=stateful,
            batch_records=BATCH,
            faults=list(faults),
            expect=list(expect),
            seed=12,
        )
    )
    verdict: dict[str, Any] = folder.read_json(folder.verdict)
    results = json.loads((folder.expectations / "results.json").read_text())
    assert results["success"] == (verdict["outcome"] == "PASSED"), verdict["reason"]
    return verdict


def _assert_exact(verdict: dict[str, Any]) -> None:
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert verdict["anomalies"] == dict.fromkeys(map(str, RESULT_KINDS), 0)
    results = verdict["results"]
    assert results["due"] == results["delivered"] > 100
    assert results["late_records"] > 10
    assert results["late_rows"][0] == results["late_rows"][1]
    if not results["batches_unreported"]:
        assert results["dropped_rows"] == results["late_rows"][0] > 10


def test_windows_are_exact_when_the_driver_is_killed(testbed: Testbed) -> None:
    verdict = _run(WINDOW, "two_phase_commit", FaultSpec(fault="kill_driver"))
    _assert_exact(verdict)
    assert verdict["driver_starts"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pipeline", "strategy", "fault"),
    [
        (WINDOW, "two_phase_commit", "kill_executor"),
        (JOIN, "two_phase_commit", "kill_executor"),
        (JOIN, "two_phase_commit", "kill_driver"),
        (WINDOW, "postgres_ledger", "kill_driver"),
        (JOIN, "postgres_ledger", "kill_executor"),
        (WINDOW, "postgres_two_phase_commit", "kill_driver"),
    ],
)
def test_a_stateful_job_is_exact_under_kills(testbed: Testbed, pipeline: str, strategy: str, fault: str) -> None:
    _assert_exact(_run(pipeline, strategy, FaultSpec(fault=fault)))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["two_phase_commit", "postgres_two_phase_commit"])
@pytest.mark.parametrize(("pipeline", "step"), [(WINDOW, "after_decision"), (JOIN, "after_decision"), (WINDOW, "between_commits")])
def test_a_stateful_job_is_exact_when_it_crashes_at_a_step_of_its_commit(testbed: Testbed, pipeline: str, strategy: str, step: str) -> None:
    """After the decision the next start carries it out, and computes the batch all the same: its state and its event times are needed."""
    _assert_exact(_run(pipeline, strategy, FaultSpec(fault="crash_at_step", parameters={"step": step})))


@pytest.mark.slow
def test_sliding_windows_are_exact_when_the_driver_is_killed(testbed: Testbed) -> None:
    sliding = DECLARED.model_copy(update={"window_min": 180, "slide_min": 60})
    _assert_exact(_run(WINDOW, "two_phase_commit", FaultSpec(fault="kill_driver"), stateful=sliding))


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [WINDOW, JOIN])
def test_a_job_whose_state_is_lost_is_found_out(testbed: Testbed, pipeline: str) -> None:
    """Offsets are kept, the checkpoint is not: each start of ``offset_commit`` has one of its own."""
    verdict = _run(pipeline, "offset_commit", FaultSpec(fault="kill_driver"))
    assert verdict["outcome"] == "FAILED", verdict["reason"]
    assert verdict["anomalies"]["MISSING"] > 10


@pytest.mark.slow
@pytest.mark.parametrize(("pipeline", "shown"), [(WINDOW, "WRONG_VALUE"), (JOIN, "MISSING")])
def test_a_job_whose_watermark_is_too_small_is_found_out(testbed: Testbed, pipeline: str, shown: str) -> None:
    verdict = _run(pipeline, "two_phase_commit", stateful=TOO_SMALL)
    assert verdict["outcome"] == "FAILED", verdict["reason"]
    assert verdict["anomalies"][shown] > 10
    assert verdict["anomalies"]["DROPPED"] > 0
    assert verdict["results"]["dropped_rows"] > verdict["results"]["late_rows"][1]


@pytest.mark.slow
def test_a_crash_between_output_and_commit_repeats_results_where_that_is_allowed(testbed: Testbed) -> None:
    crash = FaultSpec(fault="crash_at_step", parameters={"step": "after_output"})
    verdict = _run(WINDOW, "checkpoint", crash, expect=(Anomaly.REPEATED,))
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert verdict["anomalies"]["REPEATED"] > 0
