"""What a test of somebody's job asserts of a run: a guarantee that its records were held to, or were not looked at for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streamproof.experiment import model
from streamproof.jobs.windows import Window
from streamproof.run.window_sweep import Crash, Result, Sweep
from streamproof.testing.runs import JudgedRun, JudgedSweep
from streamproof.verdict.guarantee import Guarantee
from streamproof.verdict.judge import RunSpec, judge
from streamproof.verdict.verdict import WindowCoverage
from tests.support.checkout import ROOT
from tests.support.histories import SPEC, Story

AT_LEAST_ONCE = replace(SPEC, guarantee=Guarantee.AT_LEAST_ONCE)
AT_MOST_ONCE = replace(SPEC, guarantee=Guarantee.AT_MOST_ONCE)


def _run(path: Path, spec: RunSpec, doubled: bool = False) -> JudgedRun:
    story = Story()
    if doubled:
        story.histories.double([(0, 1)])
    folder = story.write(path / "run")
    judge(folder, spec).verdict.write(folder)
    return JudgedRun(folder)


def test_a_stronger_guarantee_than_the_job_promises_can_be_asserted(tmp_path: Path) -> None:
    _run(tmp_path, AT_LEAST_ONCE).assert_exactly_once()


@pytest.mark.parametrize("hit", [("a > b",), ("a > b", "b > a")])
def test_a_window_that_was_missed_leaves_the_guarantee_unproved(tmp_path: Path, hit: tuple[str, ...]) -> None:
    run = _run(tmp_path, AT_LEAST_ONCE)
    windows = WindowCoverage(known=("a > b", "b > a"), hit=hit)
    run.verdict.model_copy(update={"windows": windows}).write(run.folder)
    run = JudgedRun(run.folder)
    run.assert_passed()
    if len(hit) == 2:
        run.assert_exactly_once()
        return
    with pytest.raises(AssertionError, match=r"INCONCLUSIVE: exactly-once was kept, .* killed in 1 of 2 windows, never in b > a"):
        run.assert_exactly_once()


def test_a_sweep_proves_only_what_it_was_held_to(tmp_path: Path) -> None:
    known = Window("a", "b", 2, 1.0)
    hit = Result(Crash("kill_at_window", "a > b"), "PASSED", "", {}, True, "run")
    experiment = model.load(ROOT / "tests" / "zoo" / "swallowed_exception" / "repaired.yaml")
    swept = JudgedSweep(Sweep((known,), (hit,), 1), experiment, tmp_path)
    swept.assert_passed()
    swept.assert_at_least_once()
    with pytest.raises(AssertionError, match="exactly-once was not judged in this sweep, which allowed DUPLICATED"):
        swept.assert_exactly_once()
    missed = JudgedSweep(Sweep((known,), (replace(hit, hit=False),), 1), experiment, tmp_path)
    with pytest.raises(AssertionError, match=r"INCONCLUSIVE: .* never hit: `a > b`"):
        missed.assert_at_least_once()


def test_what_breaks_it_is_named(tmp_path: Path) -> None:
    run = _run(tmp_path, AT_LEAST_ONCE, doubled=True)
    run.assert_at_least_once()
    with pytest.raises(AssertionError, match="FAILED: two_phase_commit broke exactly-once: 1 DUPLICATED"):
        run.assert_exactly_once()


@pytest.mark.parametrize("assertion", [JudgedRun.assert_exactly_once, JudgedRun.assert_at_least_once])
def test_what_nobody_looked_for_was_not_kept(tmp_path: Path, assertion: Callable[[JudgedRun], None]) -> None:
    """At-most-once allows a commit ahead of its output, so that the run was not searched for any."""
    run = _run(tmp_path, AT_MOST_ONCE)
    run.assert_at_most_once()
    with pytest.raises(AssertionError, match="was not judged in this run: nobody looked for OFFSET_AHEAD"):
        assertion(run)


def test_a_promise_that_the_experiment_does_not_name_was_not_judged(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="exactly-once, ordered was not judged in this run: nobody looked for REORDERED"):
        _run(tmp_path, SPEC).assert_exactly_once("ordered")
