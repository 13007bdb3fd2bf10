"""Windows of real jobs: what is seen of them, and that the right fault in the right one shows the planted bug, every time."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from streamproof.experiment import model
from streamproof.experiment.model import Experiment
from streamproof.run import explore, runner, windows
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.verdict import Verdict
from tests.support.checkout import ROOT

ZOO = ROOT / "tests" / "zoo"


def _experiment(job: str, variant: str, **changed: Any) -> Experiment:
    return Experiment.model_validate({**yaml.safe_load((ZOO / job / f"{variant}.yaml").read_text()), **changed})


def test_the_windows_of_a_job_are_seen(testbed: Testbed) -> None:
    seen = {window.name for window in windows.look(windows.experiment_for(_experiment("mark_before_write", "buggy"))).windows}
    assert {"COMMIT progress > COMMIT orders", "COMMIT orders > OffsetCommit", "OffsetCommit > COMMIT progress"} <= seen


@pytest.mark.parametrize(
    ("variant", "window"), [("buggy", "COMMIT progress > COMMIT orders"), pytest.param("repaired", None, marks=pytest.mark.slow)]
)
def test_a_kill_in_its_window_shows_the_bug(testbed: Testbed, variant: str, window: str | None) -> None:
    parameters = {} if window is None else {"window": window}
    experiment = _experiment("mark_before_write", variant, faults=[{"fault": "kill_at_window", "parameters": parameters}])
    verdict = Verdict.read(runner.run(experiment))
    assert [injection.took_effect for injection in verdict.injections] == [True], verdict.reason
    assert (verdict.outcome, verdict.anomalies.get("LOST", 0) > 0) == (("FAILED", True) if variant == "buggy" else ("PASSED", False))


def _broken(job: str, variant: str, *faults: dict[str, Any]) -> Verdict:
    """The verdict of a run in which each of the faults took effect."""
    verdict = Verdict.read(runner.run(_experiment(job, variant, faults=list(faults))))
    assert all(injection.took_effect for injection in verdict.injections), verdict.reason
    return verdict


@pytest.mark.parametrize("variant", ["buggy", pytest.param("repaired", marks=pytest.mark.slow)])
def test_a_zombie_delivers_what_its_successor_has_delivered(testbed: Testbed, variant: str) -> None:
    zombie = {"fault": "twin_driver", "parameters": {"window": "OffsetCommit > COMMIT orders, progress"}}
    verdict = _broken("zombie_writer", variant, zombie)
    assert (verdict.outcome, verdict.anomalies.get("DUPLICATED", 0) > 0) == (("FAILED", True) if variant == "buggy" else ("PASSED", False))


@pytest.mark.parametrize("variant", ["buggy", pytest.param("repaired", marks=pytest.mark.slow)])
def test_a_kill_as_the_job_begins_shows_what_later_ones_cannot(testbed: Testbed, variant: str) -> None:
    kill = {"fault": "kill_at_window", "phase": "start", "parameters": {"window": "Produce > OffsetCommit"}}
    verdict = _broken("restart_at_latest", variant, kill)
    assert (verdict.outcome, verdict.anomalies.get("LOST", 0) > 0) == (("FAILED", True) if variant == "buggy" else ("PASSED", False))


@pytest.mark.parametrize("variant", ["buggy", pytest.param("repaired", marks=pytest.mark.slow)])
def test_messages_are_refused_until_the_job_has_noticed(testbed: Testbed, variant: str) -> None:
    verdict = _broken("swallowed_exception", variant, {"fault": "refuse_messages", "parameters": {"message": "COMMIT"}})
    assert (verdict.outcome, verdict.anomalies.get("LOST", 0) > 0) == (("FAILED", True) if variant == "buggy" else ("PASSED", False))


@pytest.mark.parametrize("variant", ["buggy", pytest.param("repaired", marks=pytest.mark.slow)])
def test_a_job_that_is_asked_to_end_must_not_forget_what_it_holds(testbed: Testbed, variant: str) -> None:
    verdict = _broken("buffer_lost_on_sigterm", variant, {"fault": "stop_driver"}, {"fault": "stop_driver"})
    gone = [check.detail for injection in verdict.injections for check in injection.evidence if "processes are gone" in check.check]
    assert ["by itself" in detail for detail in gone] == [True, True], gone
    assert (verdict.outcome, verdict.anomalies.get("LOST", 0) > 0) == (("FAILED", True) if variant == "buggy" else ("PASSED", False))


def test_what_a_recovery_does_and_the_job_at_work_does_not_is_seen(testbed: Testbed) -> None:
    first = "COMMIT progress, staged > COMMIT orders, staged"
    kill = {"fault": "kill_at_window", "parameters": {"window": first}}
    folder = runner.run(_experiment("recovery_in_two_commits", "buggy", faults=[kill]))
    assert ("COMMIT orders > COMMIT staged", first) in list(windows.in_recovery(folder, "kill_at_window"))
    again = {**kill, "parameters": {"window": first, "then": "COMMIT orders > COMMIT staged"}}
    verdict = _broken("recovery_in_two_commits", "buggy", again)
    assert (verdict.outcome, verdict.anomalies.get("DUPLICATED", 0) > 0) == ("FAILED", True)


def test_any_fault_can_wait_for_a_window_and_recovery_is_killed_too(testbed: Testbed) -> None:
    first, second = "COMMIT orders, progress > OffsetCommit", "OffsetCommit > COMMIT orders, progress"
    verdict = _broken(
        "mark_before_write",
        "repaired",
        {"fault": "kill_driver", "window": "any"},
        {"fault": "cut_kafka", "window": first, "parameters": {"seconds": 1}},
        {"fault": "kill_at_window", "parameters": {"window": second, "then": first}},
    )
    assert verdict.outcome == "PASSED", verdict.reason
    assert verdict.windows is not None
    assert {"cut_kafka", "kill_at_window"} <= set(verdict.windows.struck[first])
    assert "kill_at_window" in verdict.windows.struck[second]
    held = [check for injection in verdict.injections for check in injection.evidence if "while the job was held at" in check.check]
    assert len(held) == 2


def test_of_several_windows_a_fault_strikes_in_the_first_that_comes_and_then_in_another(testbed: Testbed) -> None:
    first, second = "COMMIT orders, progress > OffsetCommit", "OffsetCommit > COMMIT orders, progress"
    cut = {"fault": "cut_kafka", "window": f"{first} or {second}", "parameters": {"seconds": 1}}
    verdict = _broken("mark_before_write", "repaired", cut, cut)
    assert verdict.windows is not None
    assert {"cut_kafka"} == set(verdict.windows.struck[first]) == set(verdict.windows.struck[second])


@pytest.mark.slow
def test_an_exploration_finds_situations_and_shrinks_what_fails(testbed: Testbed) -> None:
    experiment = explore.experiment_for(_experiment("memory_of_ids", "buggy"), 1)
    done, folder = explore.explore(experiment, 0.25, lambda known: None, lambda tried, so_far: None, chance=False)
    assert done.outcome == "FAILED", done.reason
    assert len(done.seen) == len({tuple(key) for key in done.seen}) >= 2
    smallest = explore.smallest(done, folder, explore.failures(done)[0], lambda attempt: None)
    assert len(model.load(smallest).faults) <= 2
    assert str(smallest) in (folder / explore.EXPLORED).read_text()
