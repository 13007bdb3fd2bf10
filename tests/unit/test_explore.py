"""What an exploration tries next, and what it comes to."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from streamproof.evidence.coverage import Situation, Stage
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import InjectionEvidence, InjectionFailed, InjectionInjected, InjectionStarted, StageFailed
from streamproof.experiment import model, schedule
from streamproof.experiment.model import Experiment, Phase
from streamproof.jobs import windows
from streamproof.jobs.windows import Window
from streamproof.run import explore
from streamproof.run.explore import Arm, Chooser, Exploration, Key, Tried, key
from streamproof.run.windows import Look
from tests.support.checkout import ROOT

KNOWN = [
    Window("COMMIT orders, progress", "OffsetCommit", 9, 1.0),
    Window("OffsetCommit", "commits", 9, 1.0),
    Window("commits", "COMMIT orders, progress", 9, 1.0),
]
EXPERIMENT = explore.experiment_for(model.load(ROOT / "tests/zoo/mark_before_write/repaired.yaml"), 1)
TRIED = Tried("run", ("kill_driver",), "PASSED", "", (), 0, {}, 1.0)


def chooser(seed: int = 1) -> Chooser:
    return Chooser(EXPERIMENT, explore.arms(EXPERIMENT, Look(tuple(KNOWN))), random.Random(seed))


def chosen(chooser: Chooser, seen: dict[Key, str] | None = None) -> list[Arm]:
    """The arms of the next run, which count as tried then."""
    arms = [arm for arm, _ in chooser.next(seen or {})]
    for arm in arms:
        arm.tries += 1
    return arms


def test_a_kill_is_tried_in_the_recovery_from_each_other() -> None:
    twice = [arm.parameters for arm in explore.arms(EXPERIMENT, Look(tuple(KNOWN))) if "then" in arm.parameters]
    assert len(twice) == len(KNOWN) ** 2
    assert {"window": KNOWN[0].name, "then": KNOWN[1].name} in twice


def test_what_chance_may_draw_is_tried_in_each_window() -> None:
    windows = [arm.window for arm in explore.arms(EXPERIMENT, Look(tuple(KNOWN))) if arm.fault == "cut_kafka"]
    assert windows == [window.name for window in KNOWN]


@pytest.mark.parametrize("seed", range(5))
def test_each_run_can_be_planned(seed: int) -> None:
    choosing = chooser(seed)
    for _ in range(20):
        picked = choosing.next({})
        for arm, _spec in picked:
            arm.tries += 1
        faults = [spec.model_dump(mode="json") for _, spec in picked]
        planned = schedule.plan(Experiment.model_validate({**EXPERIMENT.model_dump(by_alias=True), "faults": faults}))
        assert 0 < len(planned.injections) == len(picked) <= explore.TOGETHER
        assert sum(arm.phase is Phase.START for arm, _ in picked) <= 1


@pytest.mark.parametrize("seed", range(5))
def test_chance_has_as_many_faults_in_a_run_as_fit_whichever_it_draws(seed: int) -> None:
    changed = {"random": {"count": explore._fitting(EXPERIMENT)}, "seed": seed}
    planned = schedule.plan(Experiment.model_validate({**EXPERIMENT.model_dump(by_alias=True), **changed}))
    assert len(planned.injections) == explore._fitting(EXPERIMENT) > 1


def test_a_run_has_no_more_faults_than_last_as_long_as_it_takes_besides() -> None:
    choosing = chooser()
    quick = len(choosing.next({}))
    choosing.lasted_s = {arm.fault: [60.0] for arm in choosing.arms}
    assert len(choosing.next({})) == 1 < quick


def test_the_same_seed_chooses_the_same() -> None:
    one, other, third = chooser(), chooser(), chooser(2)
    picked = [[[arm.fault for arm in chosen(each)] for _ in range(8)] for each in (one, other, third)]
    assert picked[0] == picked[1] != picked[2]


def test_no_message_is_struck_again_before_each_was() -> None:
    choosing = chooser()
    while not (struck := [arm for arm in choosing.arms if arm.fault == "lose_answer" and arm.tries]):
        chosen(choosing)
    while not all(arm.tries for arm in choosing.arms if arm.fault == "lose_answer"):
        assert all(arm.tries == 1 for arm in struck)
        struck += [arm for arm in chosen(choosing) if arm.fault == "lose_answer"]


def test_what_was_seen_already_comes_later() -> None:
    choosing = chooser()
    first = next(arm for _ in range(5) for arm in chosen(choosing) if arm.expected)
    seen = {(first.fault, after, str(stage), ()): "run" for after, stage in first.expected}
    choosing = chooser()
    again = next(arm for _ in range(5) for arm in chosen(choosing, seen) if arm.expected)
    assert (first.fault, first.window, first.parameters) != (again.fault, again.window, again.parameters)


def test_a_fault_that_lasts_long_is_worth_less() -> None:
    choosing = chooser()
    choosing.lasted_s = {arm.fault: [1.0] for arm in choosing.arms} | {"kill_postgres": [60.0]}
    assert "kill_postgres" not in [arm.fault for _ in range(15) for arm in chosen(choosing)]


def test_a_window_to_which_the_job_does_not_come_is_worth_less() -> None:
    choosing, others = chooser(), chooser()
    rare = KNOWN[0].name
    choosing.missed[rare] = 1
    aimed = [arm for _ in range(6) for arm in chosen(choosing) if rare in (arm.window, *arm.parameters.values())]
    before = [arm for _ in range(6) for arm in chosen(others) if rare in (arm.window, *arm.parameters.values())]
    assert len(aimed) < len(before)
    choosing.reached[rare] = 5
    assert choosing._worth(aimed[0] if aimed else before[0], set()) > 0


def test_what_a_run_missed_and_reached_is_learned(tmp_path: Path) -> None:
    folder, choosing = RunFolder.create(tmp_path / "run"), chooser()
    first, second = KNOWN[0].name, KNOWN[1].name
    faults = [{"fault": "cut_kafka", "window": first}, {"fault": "kill_at_window", "parameters": {"window": second, "then": first}}]
    planned = schedule.plan(Experiment.model_validate({**EXPERIMENT.model_dump(by_alias=True), "faults": faults}))
    folder.schedule.write_text(planned.to_json())
    folder.journal.append(InjectionFailed(injection="cut_kafka-1", error="not reached"))
    strikes = [{"window": window, "at_ns": 1} for window in (second, first)]
    folder.journal.append(InjectionInjected(injection="kill_at_window-1", target={"strikes": strikes}))
    choosing.learn(folder, [], [], {})
    assert choosing.missed == {first: 1}
    assert choosing.reached == {first: 1, second: 1}


def test_a_fault_is_aimed_at_all_windows_in_which_it_has_not_struck() -> None:
    choosing = chooser()
    cut = [arm for arm in choosing.arms if arm.fault == "cut_kafka"]
    assert choosing._aim(cut[0], set()) == windows.OR.join(window.name for window in KNOWN[:1] + KNOWN[2:])  # one holds an answer
    assert choosing._aim(cut[2], {("cut_kafka", window.after, Stage.WORK) for window in KNOWN[:2]}) == KNOWN[2].name
    kill = next(arm for arm in choosing.arms if arm.fault == "kill_at_window" and arm.parameters == {"window": KNOWN[0].name})
    spec = kill.spec(EXPERIMENT, choosing.rng, choosing._aim(kill, set()))
    assert spec.parameters["window"] == f"{KNOWN[0].name} or {KNOWN[2].name}"


def test_of_a_fault_that_was_aimed_at_several_the_one_counts_as_tried_in_which_it_struck(tmp_path: Path) -> None:
    folder, choosing = RunFolder.create(tmp_path / "run"), chooser()
    arms = [arm for arm in choosing.arms if arm.fault == "cut_kafka"]
    spec = arms[0].spec(EXPERIMENT, choosing.rng, choosing._aim(arms[0], set()))
    planned = schedule.plan(Experiment.model_validate({**EXPERIMENT.model_dump(by_alias=True), "faults": [spec.model_dump(mode="json")]}))
    folder.schedule.write_text(planned.to_json())
    target = {"strikes": [{"window": KNOWN[2].name, "at_ns": 1}]}
    folder.journal.append(InjectionInjected(injection="cut_kafka-1", target=target))
    choosing.learn(folder, [(arms[0], spec)], [], {})
    assert [arm.tries for arm in arms] == [0, 0, 1]
    assert (choosing.reached, choosing.missed) == ({KNOWN[2].name: 1}, {})


def test_a_window_that_the_job_seldom_passes_is_worth_less() -> None:
    choosing = chooser()
    cut = [arm for arm in choosing.arms if arm.fault == "cut_kafka"]
    choosing.often = {KNOWN[0].name: 0.2}
    assert choosing._worth(cut[0], set()) < choosing._worth(cut[1], set())


def test_an_exploration_passes_only_when_the_job_was_killed_in_every_window() -> None:
    done = Exploration(tuple(KNOWN[:2]), [TRIED], {}, {KNOWN[0].name})
    assert done.outcome == "INCONCLUSIVE"
    assert "never killed in OffsetCommit > commits" in done.reason
    done.hit.add(KNOWN[1].name)
    assert done.outcome == "PASSED"
    done.tried.append(replace(TRIED, outcome="FAILED"))
    assert done.outcome == "FAILED"
    assert "1 of its runs FAILED; killed in 2 of 2 windows" in done.reason


def test_of_each_kind_of_failure_the_one_with_the_fewest_faults_is_shrunk() -> None:
    lost = replace(TRIED, outcome="FAILED", anomalies={"LOST": 3})
    both = replace(lost, anomalies={"LOST": 1, "DUPLICATED": 1})
    several = replace(lost, run="several", faults=("a", "b", "c"))
    assert explore.failures(Exploration((), [TRIED, several, lost, both])) == [lost, both]


def test_other_messages_on_their_way_make_another_situation() -> None:
    one = Situation("lose_answer-1", "Produce", Stage.WORK, ("EndTxn",))
    assert key(one) == key(replace(one, injection="lose_answer-7"))
    assert key(one) != key(replace(one, in_flight=()))
    assert key(one) != key(replace(one, stage=Stage.RECOVERY))


def test_a_fault_that_outlasts_its_run_has_lasted_until_the_run_broke(tmp_path: Path) -> None:
    folder, choosing = RunFolder.create(tmp_path / "run"), chooser()
    planned = schedule.plan(Experiment.model_validate({**EXPERIMENT.model_dump(by_alias=True), "faults": [{"fault": "burst"}]}))
    folder.schedule.write_text(planned.to_json())
    folder.journal.append(InjectionStarted(injection="burst-1", fault="burst"))
    folder.journal.append(InjectionEvidence(injection="burst-1", checks=()))
    time.sleep(0.05)
    folder.journal.append(StageFailed(stage="inject_faults", error="it hangs"))
    choosing.learn(folder, [], [], {})
    assert choosing.lasted_s["burst"][0] >= 0.05
