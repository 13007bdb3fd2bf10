"""What the sweep of a job tries, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from streamproof.experiment import model, schedule
from streamproof.experiment.model import Experiment, Phase
from streamproof.jobs import windows
from streamproof.jobs.profile import JobProfile
from streamproof.jobs.windows import Window
from streamproof.run import window_sweep
from streamproof.run.window_sweep import Crash, Result, Sweep, crashes
from streamproof.run.windows import Look
from tests.support.checkout import ROOT

KNOWN = [
    Window("offsets", "COMMIT orders", 9, 1.0),
    Window("COMMIT orders", "COMMIT progress", 9, 1.0),
    Window("COMMIT progress", "offsets", 9, 1),
]
DESCRIBED: JobProfile = model.load(ROOT / "tests/zoo/mark_before_write/buggy.yaml").profile


def every(known: Iterable[Window] = KNOWN, profile: JobProfile = DESCRIBED) -> list[Crash]:
    return [crash for run in crashes(Look(tuple(known)), profile) for crash in run]


def result(crash: Crash, outcome: str = "PASSED", hit: bool = True, **found: int) -> Result:
    return Result(crash, outcome, "", found, hit, "run")


def swept(results: Iterable[Result]) -> Sweep:
    return Sweep(tuple(KNOWN), tuple(results), len(every()))


def test_each_window_is_tried() -> None:
    kills = [(one.where, one.linger_s) for one in every() if one.fault == "kill_at_window" and one.phase is Phase.IMPACT]
    assert kills == [
        ("offsets > COMMIT orders", 0.0),
        ("COMMIT orders > COMMIT progress", 0.0),
        ("COMMIT progress > offsets", 0.0),
        ("offsets > COMMIT orders", 5.0),
        ("COMMIT orders > COMMIT progress", 5.0),
    ]


def test_one_window_is_tried_as_each_run_begins() -> None:
    runs = crashes(Look(tuple(KNOWN)), DESCRIBED)
    assert [[one.where for one in run if one.phase is Phase.START] for run in runs][:3] == [[window.name] for window in KNOWN]
    assert all(run[0].spec.phase is Phase.START for run in runs[:3])
    assert {one.spec.at for run in runs for one in run if one.phase is Phase.IMPACT} == {window_sweep.AT}


@pytest.mark.parametrize("batches", [8, 20, 24, 100])
def test_a_run_has_room_for_its_faults(batches: int) -> None:
    """The workload of a job may be small: each run of the sweep can be planned."""
    given = model.load(ROOT / "tests/zoo/zombie_writer/buggy.yaml")
    given = Experiment.model_validate({**given.model_dump(), "workload": {"source": "flights", "records": 150 * batches}})
    planned = window_sweep.experiment_for(given, 1)
    runs = crashes(Look(tuple(KNOWN)), DESCRIBED, planned.workload.records // planned.micro_batch)
    assert sorted(map(str, (crash for run in runs for crash in run))) == sorted(map(str, every()))
    for run in runs:
        faults = [crash.spec.model_dump(mode="json") for crash in run]
        assert len(schedule.plan(Experiment.model_validate({**planned.model_dump(by_alias=True), "faults": faults})).injections) == len(run)


def test_each_message_is_lost() -> None:
    lost = [(one.fault, one.where, one.nth) for one in every() if one.fault in ("lose_answer", "drop_request")]
    assert lost == [(fault, *step) for fault in ("lose_answer", "drop_request") for step in (("COMMIT orders", 1), ("COMMIT progress", 2))]
    assert [one.spec.parameters for one in every() if one.fault == "lose_answer"] == [
        {"message": "COMMIT", "nth": 1},
        {"message": "COMMIT", "nth": 2},
    ]
    assert [one.spec.parameters for one in every() if one.fault == "refuse_messages"] == [{"message": "COMMIT", "nth": 1, "seconds": 60.0}]


def test_commits_of_transactions_arrive_late_when_that_is_asked_for() -> None:
    known = [Window("Produce", "TxnOffsetCommit", 9, 1.0), Window("TxnOffsetCommit", "EndTxn", 9, 1.0)]
    asked = [one for run in crashes(Look(tuple(known)), DESCRIBED, late=True) for one in run if one.fault == "late_request"]
    assert [(one.where, one.until) for one in asked] == [("EndTxn", "Produce"), ("EndTxn", "TxnOffsetCommit")]
    assert asked[0].spec.parameters == {"message": "EndTxn", "nth": 1, "until": "Produce", "delay_ms": 5000}
    assert not [one for one in every(known) if one.fault == "late_request"]


def test_a_statement_is_found_by_its_table() -> None:
    known = [Window("INSERT orders", "INSERT progress", 9, 1.0)]
    lost = [one.spec.parameters for one in every(known) if one.fault == "drop_request"]
    assert [(one["message"], one["sql"]) for one in lost] == [("INSERT", "orders"), ("INSERT", "progress")]


@pytest.mark.parametrize("step", sorted({*windows.CHANGING, *windows.OF_TABLES, *windows.ENDING, *windows.DECIDING}))
def test_every_step_that_can_be_seen_can_be_struck(step: str) -> None:
    known = [Window(step, "commits", 9, 1.0), Window("commits", step, 9, 1.0)]
    assert {one.fault for one in every(known) if one.spec and one.batches} >= {"kill_at_window", "twin_driver"}


def test_a_driver_stands_still_after_each_step() -> None:
    assert [one.where for one in every() if one.fault == "twin_driver"] == [window.name for window in KNOWN]
    between_files = [Window("commits", "offsets", 9, 1.0)]
    assert [one.fault for one in every(between_files) if one.fault != "stop_driver"] == ["kill_at_window"]


def test_a_driver_stands_still_after_the_last_of_several_steps_of_a_name() -> None:
    known = [Window("Produce", "Produce", 9, 1.0), Window("Produce", "EndTxn", 9, 1.0), Window("EndTxn", "Produce", 9, 1.0)]
    assert [one.where for one in every(known) if one.fault == "twin_driver"] == ["Produce > EndTxn", "EndTxn > Produce"]


def test_no_driver_stands_still_whose_executors_keep_the_cluster() -> None:
    with_executors = Experiment.model_validate(
        {"name": "a", "job": {"engine": "command", "command": ["a"], "executors": "jvm", "delivers": {"kafka": {}},
         "promises": "at-least-once"}}
    ).profile  # fmt: skip
    assert not [one for one in every(profile=with_executors) if one.fault == "twin_driver"]


def test_a_sweep_passes_only_when_every_window_was_hit() -> None:
    all_hit = swept(map(result, every()))
    assert (all_hit.outcome, all_hit.reason) == (
        "PASSED",
        "killed in 3 of 3 windows, messages lost in 5 ways, 0 answered by errors, asked to end 2 times, 3 twins",
    )
    missed = swept(result(one, hit="progress > offsets" not in one.where) for one in every())
    assert missed.outcome == "INCONCLUSIVE"
    assert missed.reason.endswith("never hit: `COMMIT progress > offsets`")
    half = swept(result(one, hit=one.fault != "refuse_messages") for one in every())
    assert (half.outcome, half.reason.rpartition("; ")[2]) == ("PASSED", "not shown: `refuse_messages for 60 s at most at COMMIT`")


def test_what_broke_the_job_is_named() -> None:
    first, second, *others = every()
    broken = swept([result(first, "FAILED", LOST=150), *map(result, [second, *others])])
    assert broken.outcome == "FAILED"
    assert "150 LOST by kill_at_window as the job begins at offsets > COMMIT orders" in broken.reason
    stopped = swept([result(first), result(second, "FAILED", LOST=2)])
    assert stopped.reason == f"2 LOST by kill_at_window at offsets > COMMIT orders; 2 of {len(every())} faults tried"


class Runs:
    """Runs that fail when all of ``bad`` are in them."""

    def __init__(self, *bad: str) -> None:
        self.bad, self.seen = set(bad), list[list[str]]()

    def __call__(self, experiment: Experiment, together: list[Crash]) -> list[Result]:
        names = [crash.fault for crash in together]
        self.seen.append(names)
        fails = self.bad <= set(names)
        found = {"LOST": 1} if fails else {}
        return [Result(crash, "FAILED" if fails else "PASSED", "", found, True, "run") for crash in together]


@pytest.mark.parametrize("keep_going", [False, True])
def test_what_fails_is_tried_alone(monkeypatch: pytest.MonkeyPatch, keep_going: bool) -> None:
    runs = Runs("lose_answer")
    monkeypatch.setattr(window_sweep, "_run", runs)
    together = [Crash("drop_request", "COMMIT"), Crash("lose_answer", "COMMIT"), Crash("refuse_messages", "COMMIT")]
    results = list(window_sweep._results(None, together, keep_going))  # type: ignore[arg-type]
    assert [(one.crash.fault, one.outcome) for one in results][:2] == [("drop_request", "PASSED"), ("lose_answer", "FAILED")]
    assert (len(results), len(runs.seen)) == ((3, 4) if keep_going else (2, 3))


def test_the_most_blamed_is_tried_alone_first(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blaming(Runs):
        def __call__(self, experiment: Experiment, together: list[Crash]) -> list[Result]:
            return [replace(each, blamed=7 * (each.crash.fault == "lose_answer")) for each in super().__call__(experiment, together)]

    runs = Blaming("lose_answer")
    monkeypatch.setattr(window_sweep, "_run", runs)
    together = [Crash("drop_request", "COMMIT"), Crash("refuse_messages", "COMMIT"), Crash("lose_answer", "COMMIT")]
    results = list(window_sweep._results(None, together, False))  # type: ignore[arg-type]
    assert [(one.crash.fault, one.outcome) for one in results] == [("lose_answer", "FAILED")]
    assert len(runs.seen) == 2


def test_what_fails_only_together_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_sweep, "_run", Runs("lose_answer", "drop_request"))
    together = [Crash("drop_request", "COMMIT"), Crash("lose_answer", "COMMIT"), Crash("refuse_messages", "COMMIT")]
    results = list(window_sweep._results(None, together, False))  # type: ignore[arg-type]
    assert [one.outcome for one in results] == ["PASSED", "PASSED", "FAILED"]
    assert results[-1].told == (
        "refuse_messages at COMMIT or by drop_request at COMMIT, lose_answer at COMMIT, all in one run (run); none of them broke it alone"
    )


def test_a_sweep_that_is_stopped_tries_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    def stopped(_: Experiment, together: list[Crash]) -> list[Result]:
        runs.append(len(together))
        return [result(crash, "FAILED" if len(runs) == 1 else "ABORTED") for crash in together]

    monkeypatch.setattr(window_sweep, "_run", stopped)
    together = [Crash("drop_request", "COMMIT"), Crash("lose_answer", "COMMIT"), Crash("refuse_messages", "COMMIT")]
    assert [one.outcome for one in window_sweep._results(None, together, True)] == ["ABORTED"]  # type: ignore[arg-type]
    assert [one.outcome for one in window_sweep._results(None, together, True)] == ["ABORTED"]  # type: ignore[arg-type]
    assert runs == [3, 1, 3]


def test_a_job_that_breaks_its_promise_without_a_fault_is_not_broken_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_sweep, "windows_of", lambda experiment: Look(tuple(KNOWN), found={"LOST": 3}))
    done = window_sweep.sweep(None, lambda known: None, lambda *told: None)  # type: ignore[arg-type]
    assert (done.outcome, done.reason) == ("FAILED", "3 LOST without any fault: none was tried")


def test_messages_and_statements_are_answered_by_errors() -> None:
    known = (Window("Produce", "OffsetCommit", 9, 1.0), Window("OffsetCommit", "Produce", 9, 1.0))
    errors = [one for run in crashes(Look(known, ("INSERT orders, seen",)), DESCRIBED) for one in run if one.fault == "error_answer"]
    assert [one.spec.parameters for one in errors] == [
        {"message": "Produce", "nth": 1, "kind": "fatal"},
        {"message": "OffsetCommit", "nth": 1, "kind": "fatal"},
        {"message": "INSERT", "nth": 1, "sql": "orders", "kind": "retriable"},
    ]


def test_only_the_message_by_which_a_job_delivers_is_refused_for_long() -> None:
    known = [Window("COMMIT orders", "Produce", 9, 1.0), Window("Produce", "OffsetCommit", 9, 1.0)]
    refused = {one.where: one.seconds for one in every(known) if one.fault == "refuse_messages"}
    assert refused == {"COMMIT": 60.0, "Produce": 60.0, "OffsetCommit": 0.0}


def test_a_kill_in_recovery_is_told() -> None:
    crash = Crash("kill_at_window", KNOWN[0].name, then="COMMIT orders > COMMIT staged")
    assert crash.spec.parameters == {"window": KNOWN[0].name, "then": "COMMIT orders > COMMIT staged"}
    done = swept([*map(result, every()), result(crash)])
    assert "killed in 3 of 3 windows and 1 of its recovery" in done.reason
    assert replace(done, once=("TRUNCATE seen",)).reason.endswith("done only once, so nothing was tried beside it: `TRUNCATE seen`")


def test_a_job_that_commits_by_time_gets_a_workload_that_lasts() -> None:
    planned = window_sweep.experiment_for(model.load(ROOT / "tests/zoo/zombie_writer/buggy.yaml"), 1)
    slower = window_sweep._slower(planned, Look(tuple(KNOWN), commits=2))
    assert slower is not None
    assert (slower.workload.rate_per_s, slower.workload.records) == (50, 3000)
    assert window_sweep._slower(slower, Look(tuple(KNOWN), commits=2)) is None
    for other in (Look(tuple(KNOWN), commits=24), Look(tuple(KNOWN))):
        assert window_sweep._slower(planned, other) is None


def test_a_recovery_that_went_another_way_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    again = Crash("kill_at_window", KNOWN[0].name, then="COMMIT orders > COMMIT staged")
    runs: list[int] = []

    def missed(_: Experiment, together: list[Crash]) -> list[Result]:
        runs.append(len(together))
        return [result(crash, "PASSED", hit=not crash.then) for crash in together]

    monkeypatch.setattr(window_sweep, "_run", missed)
    assert [one.hit for one in window_sweep._results(None, [Crash("drop_request", "COMMIT"), again], False)] == [True, False]  # type: ignore[arg-type]
    assert runs == [2]
