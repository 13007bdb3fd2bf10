"""The fault injector leads a run through its phases: faults come when they are planned, leave each other their part, and are healed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import (
    Aborted,
    FailpointReleased,
    InjectionEvent,
    InjectionEvidence,
    InjectionFailed,
    InjectionInjected,
    InjectionStarted,
    LoadFinished,
    PhaseBegan,
)
from streamproof.evidence.progress import Progress
from streamproof.experiment.model import Phase
from streamproof.experiment.schedule import Injection, Schedule
from streamproof.faults import FAULTS
from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, Unconditional
from streamproof.jobs.context import RunContext, RunEnded
from streamproof.load.gate import Gate
from streamproof.run import injector, steady_state
from streamproof.testbed.embedded import Testbed
from tests.support.checkout import ROOT
from tests.support.jobs import run_context, spark_job

RECORDS, BATCH, COMMIT_S, UNWATCHED_S = 800, 20, 0.02, 0.15
REACHES = """
import sys, time
from streamproof.evidence.folder import RunFolder
from streamproof.engines.spark.failpoints import reach
folder = RunFolder(sys.argv[1])
for batch in range(6000):
    reach(folder, "after_decision", batch)
    time.sleep(0.01)
"""


class Note(Unconditional):
    """A fault that breaks nothing and keeps how far the job was."""

    summary = target = "nothing"
    parameters_model = Parameters
    occupies = frozenset({"nothing"})

    def __init__(
        self,
        name: str,
        lasts: Callable[[RunContext], Any] = lambda context: None,
        inject: Callable[[RunContext], Any] = lambda context: None,
    ):
        self.name, self._lasts, self._inject = name, lasts, inject
        self.at: list[int] = []
        self.batches_at: list[int] = []
        self.contexts: list[RunContext] = []
        self.healed = 0

    def aim(self, context: RunContext, parameters: Parameters) -> dict[str, Any]:
        return {}

    def inject(self, context: RunContext, parameters: Parameters, target: dict[str, Any]) -> None:
        self._inject(context)
        self.at.append(context.progress.committed())
        self.batches_at.append(context.progress.batches())
        self.contexts.append(context)

    def evidence(self, context: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        self._lasts(context)
        return [EvidenceCheck("it was noted", True, "")]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        self.healed += 1
        return []


class Run:
    """A run whose job commits whatever the gate lets through, one batch after the other. It waits a moment until somebody has looked at the
    last one, so that it does not run away from whoever follows it on a busy machine."""

    def __init__(self, folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder, monkeypatch
        job = spark_job(folder, "two_phase_commit", batch_records=BATCH)
        self.context = run_context(folder, job=job, deadline=time.monotonic() + 60, records=RECORDS)
        self._over, self._looked = threading.Event(), threading.Event()
        for question in (Progress.committed, Progress.batches):
            monkeypatch.setattr(Progress, question.__name__, self._noticed(question))
        self._job = threading.Thread(target=self._work)
        self._job.start()

    def _noticed(self, question: Callable[[Progress], int]) -> Callable[[Progress], int]:
        def ask(progress: Progress) -> int:
            if threading.current_thread() is not self._job:  # whose gate asks too
                self._looked.set()
            return question(progress)

        return ask

    def _work(self) -> None:
        gate, done, number = Gate(self.folder), 0, 0
        while not self._over.wait(COMMIT_S):
            allowed = min(gate.records(), RECORDS)
            if done + BATCH <= allowed:
                self._looked.wait(UNWATCHED_S)
                self._looked.clear()
                done, number = done + BATCH, number + 1
                with self.folder.progress.open("a") as file:
                    file.write(json.dumps({"batch": number, "start": 1, "rows": BATCH, "from": {}, "until": {"0": done}}) + "\n")
            if done == RECORDS:
                self.folder.journal.append(LoadFinished(acked=RECORDS))
                return

    def stop(self) -> None:
        self._over.set()
        self._job.join(10)

    def perform(self, faults: list[Note], injections: list[Injection], quiet: float | str = 0.0, impact_share: float = 0.75) -> None:
        for fault in faults:
            self._patch.setitem(FAULTS, fault.name, fault)
        injector.run_schedule(self.context, Schedule(1, 0.1, impact_share, tuple(injections), quiet))

    def checks(self, name: str) -> dict[str, bool]:
        (event,) = [each for each in self.folder.journal.all(InjectionEvidence) if each.injection == name]
        return {check.check: check.passed for check in event.checks}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(steady_state, "check", lambda testbed, folder: [])  # there is no testbed here
    found = Run(RunFolder.create(tmp_path / "run"), monkeypatch)
    yield found
    found.stop()


def at(fault: str, share: float, **fields: Any) -> Injection:
    return Injection(f"{fault}-1", fault, share, {}, **fields)


def test_faults_are_injected_at_their_share_one_after_the_other_and_are_healed(run: Run) -> None:
    one, other = Note("one"), Note("other")
    run.perform([one, other], [at("one", 0.3), at("other", 0.5)])
    assert 0.3 * RECORDS <= one.at[0] < 0.5 * RECORDS <= other.at[0] < 0.75 * RECORDS
    assert (one.healed, other.healed) == (1, 1)
    events = [event.name for event in run.folder.journal.all(InjectionEvent)]
    assert events == ["injection_started", "injection_injected", "injection_evidence", "injection_healed"] * 2
    assert [event.phase for event in run.folder.journal.all(PhaseBegan)] == ["steady", "impact", "recovery", "done"]


def test_a_fault_is_injected_once_as_many_batches_are_committed(run: Run) -> None:
    note = Note("note")
    run.perform([note], [at("note", 0.5, batch=12)])
    assert 12 <= note.batches_at[0] <= 15


def test_a_batch_that_was_never_reported_holds_nothing_up(run: Run) -> None:
    note = Note("note")
    run.perform([note], [at("note", 0.35, batch=500)])
    assert note.at[0] >= 0.35 * RECORDS


def test_a_fault_that_takes_long_leaves_the_next_one_its_part(run: Run) -> None:
    """It lasts until the job makes no progress; the next needs two batches, and finds them."""

    stalled_at: list[int] = []

    def until_it_stalls(context: RunContext) -> None:
        looks = [-1, -2, -3]
        while len(set(looks)) > 1:
            time.sleep(0.1)
            looks = [*looks[1:], context.progress.committed()]
        stalled_at.append(looks[-1])

    run.perform([Note("long", until_it_stalls), other := Note("other")], [at("long", 0.2), at("other", 0.3)])
    assert 0.3 * RECORDS < stalled_at[0] <= 0.75 * RECORDS - 2 * BATCH
    assert stalled_at[0] <= other.at[0] <= 0.75 * RECORDS


def test_a_quick_job_that_has_committed_all_it_may_have_gets_more_while_a_fault_lasts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its share is used up long before the fault is injected, and the fault's evidence needs batches all the same."""

    def until_it_commits(context: RunContext) -> None:
        stalled = context.progress.committed()
        while context.progress.committed() < stalled + 4 * BATCH:
            time.sleep(0.1)
            assert time.monotonic() < context.deadline, "it stood still"

    monkeypatch.setattr(injector, "FEED_AFTER_S", 0.3)
    waits = Note("waits", until_it_commits, lambda context: time.sleep(1))
    run.perform([waits], [at("waits", 0.5)], impact_share=0.55)
    assert run.checks("waits-1") == {"it was noted": True}
    assert run.context.progress.committed() == RECORDS


def test_a_fault_that_waits_learns_that_the_job_has_nothing_left_to_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injector, "FEED_AFTER_S", 0.3)
    spent_at: list[int] = []

    def until_it_is_spent(context: RunContext) -> None:
        context.wait_for("its end", context.spent.is_set, 30)
        spent_at.append(context.progress.committed())

    run.perform([Note("waits", until_it_is_spent)], [at("waits", 0.6)])
    assert spent_at == [RECORDS - BATCH]
    assert run.context.progress.committed() == RECORDS


def test_between_two_faults_a_share_passes_without_any(run: Run) -> None:
    one, other = Note("one"), Note("other")
    run.perform([one, other], [at("one", 0.3), at("other", 0.31)], quiet=0.2)
    assert other.at[0] - one.at[0] >= 0.2 * RECORDS


def test_a_quiet_that_is_a_time_uses_up_no_more_than_was_sent_ahead(run: Run) -> None:
    one, other = Note("one"), Note("other")
    begun = time.monotonic()
    run.perform([one, other], [at("one", 0.3), at("other", 0.31)], quiet="1.5s")
    assert time.monotonic() - begun >= 1.5
    assert other.at[0] - one.at[0] <= 6 * BATCH


def test_a_fault_of_the_recovery_phase_is_injected_when_the_rest_of_the_workload_is_on_its_way(run: Run) -> None:
    note = Note("note")
    run.perform([note], [at("note", 0.6, phase=Phase.RECOVERY)], impact_share=0.6)
    (started,) = run.folder.journal.all(InjectionStarted)
    phases = [event.phase for event in run.folder.journal.all(PhaseBegan) if event.at <= started.at]
    assert (started.phase, phases[-1]) == ("recovery", "recovery")


def test_faults_that_overlap_last_side_by_side(run: Run) -> None:
    second = threading.Event()
    first = Note("first", lambda context: second.wait(20))
    run.perform([first, Note("second", lambda context: second.set())], [at("first", 0.3), at("second", 0.3, overlaps=True)])
    assert run.checks("second-1") == {"it was injected while first-1 lasted": True, "it was noted": True}
    injected, evidence = (run.folder.journal.all(InjectionInjected), run.folder.journal.all(InjectionEvidence))
    assert [event.injection for event in injected] == ["first-1", "second-1"]
    assert injected[1].at <= evidence[0].at


def test_one_that_is_injected_when_the_other_is_over_has_not_overlapped(run: Run) -> None:
    first = Note("first")
    late = Note("late", inject=lambda context: time.sleep(0.5))
    run.perform([first, late], [at("first", 0.3), at("late", 0.3, overlaps=True)])
    assert run.checks("late-1") == {"it was injected while first-1 lasted": False, "it was noted": True}


def test_one_that_is_injected_beside_a_fault_that_did_not_has_not_overlapped(run: Run) -> None:
    def refuse(context: RunContext) -> None:
        raise FaultError("there is nothing to break")

    run.perform([Note("first", inject=refuse), Note("second")], [at("first", 0.3), at("second", 0.3, overlaps=True)])
    assert run.checks("second-1")["it was injected while first-1 lasted"] is False
    assert [event.injection for event in run.folder.journal.all(InjectionFailed)] == ["first-1"]


def test_a_run_that_ends_heals_all_that_overlap(run: Run) -> None:
    def end(context: RunContext) -> None:
        context.folder.journal.append(Aborted(reason="stopped"))
        context.wait_for("the end", lambda: False, 20)

    first = Note("first", lambda context: context.wait_for("the end", lambda: False, 20))
    second = Note("second", end)
    with pytest.raises(RunEnded, match="stopped"):
        run.perform([first, second], [at("first", 0.3), at("second", 0.3, overlaps=True)])
    assert (first.healed, second.healed) == (1, 1)


def test_the_job_is_held_at_the_step_while_the_fault_is_injected(run: Run) -> None:
    process = subprocess.Popen([sys.executable, "-c", REACHES, str(run.folder.path)], cwd=ROOT)
    try:
        note = Note("note", inject=lambda context: time.sleep(0.3))
        run.perform([note], [at("note", 0.3, step="after_decision")])
        assert note.contexts[0].held is not None
        assert note.contexts[0].held.pid == process.pid
        assert run.checks("note-1") == {"it was injected while the job was held at after_decision": True, "it was noted": True}
        (released,) = run.folder.journal.all(FailpointReleased)
        assert released.after_s >= 0.3
        assert list(run.folder.failpoints.iterdir()) == []
    finally:
        process.kill()
        process.wait(10)


def test_a_hold_that_ended_before_the_fault_was_injected_is_no_evidence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproof.faults.process.hold.HOLD_S", 0.1)
    process = subprocess.Popen([sys.executable, "-c", REACHES, str(run.folder.path)], cwd=ROOT)
    try:
        run.perform([Note("note", inject=lambda context: time.sleep(1.0))], [at("note", 0.3, step="after_decision")])
        assert run.checks("note-1")["it was injected while the job was held at after_decision"] is False
    finally:
        process.kill()
        process.wait(10)


def test_a_step_that_is_never_reached_is_a_fault_that_did_not_take_effect(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproof.faults.process.hold.REACH_S", 0.3)
    note = Note("note")
    run.perform([note], [at("note", 0.3, step="after_decision")])
    (failed,) = run.folder.journal.all(InjectionFailed)
    assert "after_decision to be reached" in failed.error
    assert (note.at, list(run.folder.failpoints.iterdir())) == ([], [])
