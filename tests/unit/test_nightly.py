"""A nightly run's summary: what each scenario changed, what was not run, and when the nightly run is red."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from streamproof.errors import BadInput
from streamproof.evidence.folder import EvidenceError, RunFolder, write_atomically
from streamproof.evidence.journal import Restored
from streamproof.experiment.matrix import Scenario
from streamproof.history.changes import Kind
from streamproof.run import recording, stages
from streamproof.run.nightly import NightlyRun, Summary
from streamproof.verdict.decide import RunOutcome
from tests.support.histories import unjudged

MATRIX = "strategies: [offset_commit, two_phase_commit]\nfaults: [kill_executor]\nquota: {nightly_run_s: 600}\n"
Play = Callable[..., Summary]


@pytest.fixture
def matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path / "home"))
    file = tmp_path / "matrix.yaml"
    file.write_text(MATRIX)
    return file


def _run(name: str, scenario: Scenario, outcome: RunOutcome, recovery_s: float = 1.0, windows: dict[str, Any] | None = None) -> RunFolder:
    """A run's folder as its steps leave it, in the history."""
    folder = stages.create(scenario.experiment, name)
    verdict = {**unjudged(stages.run_spec(folder), outcome, f"it {outcome}"), "as_expected": outcome is RunOutcome.PASSED}
    write_atomically(
        folder.verdict,
        json.dumps(
            {
                **verdict,
                "recovery_s": recovery_s,
                "windows": windows,
                "sent": {"acked": 10, "rejected": 0, "indeterminate": 0},
                "delivered": 10,
            }
        ),
    )
    folder.journal.append(Restored())
    recording.record(folder)
    return folder


@pytest.fixture
def play(matrix: Path) -> Play:
    """Play a nightly run: the letter of each scenario's outcome, ``-`` for one whose turn does not come."""

    def played(name: str, outcomes: str, **more: Any) -> Summary:
        night = NightlyRun.named(name)
        by_letter = {outcome[0]: outcome for outcome in RunOutcome}
        for scenario, letter in zip(night.plan(matrix), outcomes, strict=True):
            if letter != "-":
                run = night.run(scenario, 1)
                night.begin(scenario, run)
                _run(run, scenario, by_letter[letter], **more)
                night.end(scenario, run)
        return night.summarise()

    return played


def _states(summary: Summary) -> dict[str, str]:
    return {told.strategy: told.state for told in summary.scenarios}


def test_a_first_nightly_run_in_which_all_passes_is_new_and_not_red(play: Play) -> None:
    summary = play("night-1", "PP")
    assert _states(summary) == {"offset_commit": Kind.NEW, "two_phase_commit": Kind.NEW}
    assert not summary.red
    assert summary.news == ()


def test_a_nightly_run_says_in_which_windows_no_job_was_killed(play: Play) -> None:
    summary = play("night-1", "PP", windows={"known": ["a > b", "b > a"], "hit": ["a > b"]})
    assert summary.windows == tuple(f"{job}: killed in 1 of 2 windows, never in b > a" for job in ("offset_commit", "two_phase_commit"))
    assert summary.text.endswith(summary.windows[-1])
    assert (summary.red, summary.outcome) == (False, "INCONCLUSIVE")
    assert summary.headline.endswith("; INCONCLUSIVE: windows were missed of offset_commit, two_phase_commit")
    read_again = NightlyRun.named("night-1").summary()
    assert read_again is not None
    assert read_again.windows == summary.windows


def test_what_an_earlier_night_hit_counts(play: Play) -> None:
    play("night-1", "PP", windows={"known": ["a > b", "b > a"], "hit": ["a > b"]})
    summary = play("night-2", "PP", windows={"known": ["a > b", "b > a"], "hit": ["b > a"]})
    assert summary.windows == tuple(f"{job}: killed in 2 of 2 windows" for job in ("offset_commit", "two_phase_commit"))
    assert (summary.unproved, summary.outcome) == ((), "PASSED")


def test_a_nightly_run_like_the_one_before_is_no_news(play: Play) -> None:
    play("night-1", "PP")
    summary = play("night-2", "PP")
    assert set(_states(summary).values()) == {Kind.STABLE}
    assert not summary.red
    assert summary.news == ()


@pytest.mark.parametrize(
    ("before", "tonight", "state", "red"),
    [
        ("P", "F", Kind.NEWLY_BROKEN, True),
        ("F", "F", Kind.STILL_BROKEN, True),
        ("F", "P", Kind.FIXED, False),
        ("P", "I", Kind.NOT_SHOWN, True),
        ("P", "E", Kind.NOT_SHOWN, True),
        ("P", "A", "stopped", True),
        ("P", "-", "not run", True),
    ],
)
def test_the_nightly_run_names_the_scenario_that_changed(play: Play, before: str, tonight: str, state: str, red: bool) -> None:
    play("night-1", f"P{before}")
    summary = play("night-2", f"P{tonight}")
    assert _states(summary) == {"offset_commit": Kind.STABLE, "two_phase_commit": state}
    assert summary.red is red
    assert [told.strategy for told in summary.news] == ["two_phase_commit"]
    assert f"{state}: two_phase_commit (exactly-once) x kill_executor" in summary.text


def test_a_scenario_that_recovers_slower_is_told_and_the_nightly_run_is_not_red(play: Play) -> None:
    for number in range(3):
        play(f"night-{number}", "PP", recovery_s=2.0)
    summary = play("night-3", "PP", recovery_s=9.0)
    assert set(_states(summary).values()) == {Kind.SLOWER}
    assert not summary.red
    assert len(summary.news) == 2


def test_seeds_are_held_against_their_own_nightly_runs(play: Play, matrix: Path) -> None:
    matrix.write_text(MATRIX.replace("offset_commit, ", "") + "seeds: [1, 2]\n")
    play("night-1", "PF")
    assert {told.seed: told.state for told in play("night-2", "PF").scenarios} == {1: Kind.STABLE, 2: Kind.STILL_BROKEN}


def test_an_attempt_of_a_scenario_is_a_run_of_its_own_and_the_last_one_counts(play: Play, matrix: Path) -> None:
    play("night-1", "PP")
    play("night-2", "PA")
    night = NightlyRun.named("night-2")
    scenario = night.scenario(2)
    night.begin(scenario, night.run(scenario, 2))
    _run(night.run(scenario, 2), scenario, RunOutcome.PASSED)
    night.end(scenario, night.run(scenario, 2))
    summary = night.summarise()
    assert not summary.red
    assert [told.run for told in summary.scenarios if told.number == 2] == ["night-2-02-two-phase-commit-kill-executor-s1-try2"]


def test_a_run_whose_process_was_killed_is_ended_and_aborted(matrix: Path) -> None:
    night = NightlyRun.named("night-1")
    first, second = night.plan(matrix)
    for scenario in (first, second):
        night.begin(scenario, night.run(scenario, 1))
    _run(night.run(first, 1), first, RunOutcome.PASSED)
    killed = stages.create(second.experiment, night.run(second, 1))
    summary = night.summarise()
    assert _states(summary)["two_phase_commit"] == "stopped"
    assert killed.read_json(killed.verdict)["outcome"] == "ABORTED"


def test_a_run_that_passed_but_whose_task_did_not_live_to_tell_makes_the_nightly_run_red(play: Play) -> None:
    play("night-1", "PP")
    night = NightlyRun.named("night-1")
    night.begin(night.scenario(2), night.run(night.scenario(2), 1))
    assert night.summary() is None, "what was said before does not stand any more"
    summary = night.summarise()
    assert _states(summary)["two_phase_commit"] == "unfinished"
    assert summary.red


def test_a_run_whose_folder_is_gone_is_unfinished_and_makes_the_nightly_run_red(play: Play, matrix: Path) -> None:
    play("night-1", "PP")
    shutil.rmtree(Path(NightlyRun.named("night-1").path.parent.parent / "runs" / "night-1-02-two-phase-commit-kill-executor-s1"))
    summary = NightlyRun.named("night-1").summarise()
    assert _states(summary)["two_phase_commit"] == "unfinished"
    assert summary.red


def test_junit_has_a_case_for_each_scenario_and_an_error_for_those_that_were_not_run(play: Play) -> None:
    summary = play("night-1", "P-")
    suites = ET.parse(Path(summary.folder) / "junit.xml").getroot()
    cases = {case.attrib["classname"].split(".")[-2:][0]: case for case in suites.iter("testcase")}
    assert len(cases) == 2
    assert cases["offset_commit"].find("error") is None
    error = cases["two_phase_commit"].find("error")
    assert error is not None
    assert error.attrib["message"] == "its turn did not come"


def test_the_page_and_the_summary_lie_in_the_nightly_runs_folder(play: Play) -> None:
    summary = play("night-1", "PF")
    night = NightlyRun.named("night-1")
    assert night.summary() == summary
    assert "two_phase_commit" in (night.path / "history.html").read_text()


def test_the_nightly_runs_time_is_over_when_its_quota_is_used_up(matrix: Path) -> None:
    night = NightlyRun.named("night-1")
    night.plan(matrix)
    assert not night.over()
    plan = json.loads((night.path / "plan.json").read_text())
    write_atomically(night.path / "plan.json", json.dumps({**plan, "over_at": time.time() - 1}))
    assert night.over()


def test_a_matrix_that_cannot_be_run_begins_no_nightly_run(matrix: Path) -> None:
    matrix.write_text("strategies: [hope]\nfaults: [kill_executor]\n")
    night = NightlyRun.named("night-1")
    with pytest.raises(BadInput, match="there is no strategy 'hope'"):
        night.plan(matrix)
    with pytest.raises(EvidenceError, match="is not a nightly run"):
        night.summarise()
