"""A faulted run beside the same run without faults: which run that is, and what is compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamproof.errors import BadInput
from streamproof.evidence import manifest
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.experiment.model import Experiment, FaultSpec
from streamproof.run import baseline, stages
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.judge import judge
from streamproof.verdict.timing.baseline import attach, compared
from streamproof.verdict.verdict import Account, BaselineRatios, PhaseFigures, Verdict, decided
from tests.support.histories import SPEC, Story, at

FAULTED = Experiment(name="kill", strategy="offset_commit", faults=[FaultSpec(fault="kill_executor")], expect=[Anomaly.DUPLICATED], seed=7)
PLAIN = replace(SPEC, planned=(), run="plain")


def _passed(home: Path, name: str, found: Experiment, **changes: Any) -> RunFolder:
    """A run without faults that passed."""
    folder = (
        Story().without("injection_started", "injection_injected", "injection_evidence", "injection_healed").write(home / "runs" / name)
    )
    folder.experiment.write_text(found.to_yaml())
    manifest.write(folder)
    verdict = {**judge(folder, replace(PLAIN, run=name, versions=stages.versions())).verdict.to_json(), **changes}
    folder.verdict.write_text(json.dumps(verdict))
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    return tmp_path


def test_the_baseline_is_the_experiment_without_its_faults_and_what_they_were_to_show() -> None:
    found = baseline.without_faults(FAULTED)
    assert (found.name, found.faults, found.expect) == ("kill-baseline", [], [])
    assert found.model_copy(update={"name": "kill", "faults": FAULTED.faults, "expect": FAULTED.expect}) == FAULTED


def test_a_long_name_stays_a_name() -> None:
    assert baseline.without_faults(FAULTED.model_copy(update={"name": "k" * 60})).name == "k" * 51 + "-baseline"


def test_a_run_without_faults_has_no_baseline_but_itself() -> None:
    with pytest.raises(BadInput, match="no faults, there is nothing to compare"):
        baseline.without_faults(FAULTED.model_copy(update={"faults": []}))


def test_a_run_that_passed_before_is_found_whatever_its_name(home: Path) -> None:
    wanted = baseline.without_faults(FAULTED)
    folder = _passed(home, "one", wanted.model_copy(update={"name": "another-name"}))
    found = baseline.find(wanted)
    assert found is not None
    assert found.path == folder.path


@pytest.mark.parametrize(
    ("experiment", "changes"),
    [
        ({}, {"outcome": "INCONCLUSIVE"}),
        ({}, {"versions": {"pyspark": "3.0"}}),
        ({"seed": 8}, {}),
        ({"strategy": "checkpoint"}, {}),
        ({"batch_records": 100}, {}),
        ({"faults": FAULTED.faults}, {}),
    ],
)
def test_another_run_is_no_baseline(home: Path, experiment: dict[str, Any], changes: dict[str, Any]) -> None:
    wanted = baseline.without_faults(FAULTED)
    _passed(home, "one", wanted.model_copy(update=experiment), **changes)
    assert baseline.find(wanted) is None


def test_a_damaged_run_does_not_keep_another_from_being_found(home: Path) -> None:
    wanted = baseline.without_faults(FAULTED)
    folder = _passed(home, "one", wanted)
    _passed(home, "two", wanted).experiment.write_text("strategy: [")
    _passed(home, "three", wanted).verdict.write_text("{")
    found = baseline.find(wanted)
    assert found is not None
    assert found.path == folder.path


def test_a_verdict_stands_beside_its_baseline_and_can_be_made_again_without_it(home: Path, tmp_path: Path) -> None:
    plain = _passed(home, "plain", baseline.without_faults(FAULTED))
    story = Story()
    story.progress[2]["committed_at"] = at(8.9)  # the batch that the fault met took longer
    folder = story.write(home / "runs" / "faulted")
    attach(folder, plain, Verdict.read(plain))
    found = judge(folder, SPEC).verdict.to_json()["baseline"]
    assert (found["run"], found["folder"]) == ("plain", str(plain.path))
    assert (found["longest_gap_s"], found["ratios"]["longest_gap_s"]) == (3.5, 1.26)
    assert found["records_per_s"] == {"steady": None, "impact": 6.0, "recovery": 5.0}
    assert found["ratios"]["records_per_s"] == {"steady": None, "impact": 1.0, "recovery": 1.0}
    plain.verdict.unlink()
    assert judge(folder, SPEC).verdict.to_json()["baseline"] == found


def test_a_run_without_a_baseline_says_so(tmp_path: Path) -> None:
    assert judge(Story().write(tmp_path / "run"), SPEC).verdict.to_json()["baseline"] is None


def test_a_ratio_to_nothing_is_not_known(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    attach(folder, folder, decided(_account(0.0, None, steady=5.0)))
    found = compared(folder, _account(4.0, 2.0, steady=2.0, impact=9.0))
    assert found is not None
    assert found.ratios == BaselineRatios(output_s=None, longest_gap_s=None, records_per_s={"steady": 0.4, "impact": None})


def _account(output_s: float, longest_gap_s: float | None, **rates: float) -> Account:
    phases = {phase: PhaseFigures(started_at=at(0), seconds=1.0, batches=1, records_per_s=rate) for phase, rate in rates.items()}
    return SPEC.account().model_copy(update={"output_s": output_s, "longest_gap_s": longest_gap_s, "phases": phases})


@pytest.mark.parametrize("content", ["{}", "[]", '{"records_per_s": 5, "output_s": 1, "longest_gap_s": 1}'])
def test_a_damaged_baseline_is_named(tmp_path: Path, content: str) -> None:
    folder = Story().write(tmp_path / "run")
    folder.baseline.write_text(content)
    with pytest.raises(EvidenceError, match=r"baseline\.json is damaged"):
        judge(folder, SPEC)
