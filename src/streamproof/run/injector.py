"""The stage ``inject_faults``: lead the run through its phases, and inject faults by the schedule.

Each injection is journaled before it happens, and is healed whatever comes between: also when the run ends in the middle. Faults that
overlap are injected one after the other, each as soon as the one before it is, and last side by side, a thread each.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from streamproof.evidence.journal import (
    DriverExited,
    DriverReady,
    EvidenceCheck,
    InjectionEvidence,
    InjectionFailed,
    InjectionInjected,
    InjectionStarted,
    LoadFinished,
    PhaseBegan,
)
from streamproof.evidence.progress import Progress
from streamproof.experiment.model import Phase
from streamproof.experiment.room import LOOKAHEAD_BATCHES, Room
from streamproof.experiment.schedule import Injection, Schedule, share
from streamproof.faults import FAULTS
from streamproof.faults.process.hold import Hold, held, held_in
from streamproof.faults.process.window_fault import was_in
from streamproof.jobs.context import FaultError, RunContext, RunEnded
from streamproof.load.gate import Gate
from streamproof.run.first_signs import not_delivered
from streamproof.run.healing import heal_injection
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError

PHASE_S = 600.0
ANSWER_S = 30.0
INJECTED_POLL_S = 0.02
FEED_LOOK_S = 0.2
FEED_AFTER_S = 2.0
STANDS_S, HANGS_S = 15.0, 60.0
log = logging.getLogger("streamproof.run.injector")


class NotDelivered(Exception):
    """A user's own job commits what it reads, and delivers nothing that can be judged. Nothing was broken yet."""


def run_schedule(run: RunContext, schedule: Schedule, patient: bool = False) -> None:
    """Start (where there is a fault for it), steady, impact, recovery, done. An injection that does not take effect is journaled; it does
    not end the run. Raises NotDelivered when there is no output to judge before the first, unless it is ``patient``."""
    gate, journal = Gate(run.folder), run.folder.journal
    ahead = LOOKAHEAD_BATCHES * run.job.batch_records

    def phase(name: str) -> None:
        journal.append(PhaseBegan(phase=name))
        log.info("phase: %s", name)

    if schedule.groups(Phase.START):
        phase("start")
        _inject_phase(run, gate, schedule, Phase.START, schedule.steady_share)
    phase("steady")
    gate.open_to(int(schedule.steady_share * run.records) + ahead)
    _wait_for_share(run, schedule.steady_share)
    counted = run.profile.expected is not None or run.profile.results is not None  # it may deliver nothing of what it has read so far
    if run.profile.of_a_user and not patient and not counted and (reason := not_delivered(run)) is not None:
        raise NotDelivered(reason)
    phase("impact")
    _inject_phase(run, gate, schedule, Phase.IMPACT, schedule.impact_share)
    gate.open_to(int(schedule.impact_share * run.records))
    # The last impact batch must not be counted as recovery: wait until what the impact phase sent is (nearly) committed.
    _wait_for_share(run, schedule.impact_share - 2 * run.job.batch_records / run.records)
    phase("recovery")
    _inject_phase(run, gate, schedule, Phase.RECOVERY, 1.0)
    gate.open_to(run.records)
    run.wait_for("the end of the workload", lambda: journal.last(LoadFinished), PHASE_S)
    try:
        run.wait_for("the backlog to be gone", lambda: run.progress.committed() >= _written(run), PHASE_S)
    except FaultError as error:
        raise FaultError(f"{error}{_unread(run)}") from error
    phase("done")


def _wait_for_share(run: RunContext, share: float) -> None:
    try:
        run.wait_for(f"{share:.0%} of the records committed", lambda: run.progress.committed() >= share * run.records, PHASE_S)
    except FaultError as error:
        raise FaultError(f"{error}{_hangs(run)}") from error


def _hangs(run: RunContext) -> str:
    """That the job runs and has done nothing for long, where that is so; and what was broken before."""
    lines, ready, ended = run.progress.lines(), run.folder.journal.last(DriverReady), run.folder.journal.last(DriverExited)
    if not lines or ready is None or (ended is not None and ended.start >= ready.start):
        return ""
    stood_s = (datetime.now(UTC) - datetime.fromisoformat(lines[-1]["committed_at"])).total_seconds()
    if stood_s < HANGS_S:
        return ""
    broken = run.folder.journal.last(InjectionInjected)
    after = "" if broken is None else f"; the last thing that was broken is {broken.injection}"
    return f"; start {ready.start} of the job runs, and has committed nothing for {stood_s:.0f} s: it hangs{after}"


def _unread(run: RunContext) -> str:
    """Which partitions of the input the job has read nothing of, and what may be the reason."""
    ends, read = Cluster(run.testbed.direct_kafka).end_offsets(run.job.input_topic), run.progress.until()
    never = [partition for partition, end in sorted(ends.items()) if end and not read.get(str(partition))]
    if not never:
        return ""
    which = f"partition {never[0]}" if len(never) == 1 else f"partitions {', '.join(map(str, never))}"
    return (
        f"; nothing was read of {which}. Partitions that are added are found when a client looks for them: after 5 minutes, unless its "
        "`topic.metadata.refresh.interval.ms` (librdkafka) or `metadata.max.age.ms` (Java) says less, or never; set that, or a `timeout_s` "
        "above 400"
    )


def _written(run: RunContext) -> int:
    """Records that are certainly in the input topic."""
    finished = run.folder.journal.last(LoadFinished)
    return run.records if finished is None else finished.acked


def _inject_phase(run: RunContext, gate: Gate, schedule: Schedule, phase: Phase, limit: float) -> None:
    """One group of faults after the other. ``limit`` is the share of the records that the phase has; each group leaves the later ones
    theirs.

    In the impact phase the workload stays a little ahead of the job: there is always work, and always something left to send. Before the
    job begins, and in the recovery phase, it goes on to the phase's end, and the job has a backlog.
    """
    room = Room(run.records, run.job.batch_records, schedule.quiet)
    ahead = LOOKAHEAD_BATCHES * run.job.batch_records if phase is Phase.IMPACT else None
    groups = schedule.groups(phase)
    for number, group in enumerate(groups):
        if number and room.quiet_s:
            gate.open_to(0)  # a time without a fault must not use up what the next one needs
            run.let_pass(room.quiet_s)
        # On a busy machine a driver's first answer takes seconds: a fault that asks it must not lose the work it needs to that.
        if phase is not Phase.START:
            run.eventually(lambda: run.engine.answers(run.job), ANSWER_S)
        opened = int((limit - share(groups[number + 1 :], room)) * run.records)
        gate.open_to(opened, ahead)
        if number and not room.quiet_s:
            # What a fault before was fed was taken from what comes later: less may be left than the quiet.
            most = (opened - run.job.batch_records) / run.records
            _wait_for_share(run, min(run.progress.committed() / run.records + room.quiet_share, most))
        if phase is Phase.IMPACT:
            _wait_for_trigger(run, group[0])
        _inject_group([_Active(_own(run, injection, schedule.seed), injection) for injection in group])


def _wait_for_trigger(run: RunContext, injection: Injection) -> None:
    if injection.batch is None:
        _wait_for_share(run, injection.at)
        return
    batches = injection.batch
    # A driver that is killed may not have reported its last batch: by that share as many were committed, reported or not.
    run.wait_for(
        f"{batches} micro-batches",
        lambda: run.progress.batches() >= batches or run.progress.committed() >= injection.at * run.records,
        PHASE_S,
    )


def _own(run: RunContext, injection: Injection, seed: int) -> RunContext:
    """The run context of one injection, which may be in a thread of its own."""
    rng = random.Random(f"{injection.injection}:{seed}")
    return replace(run, progress=Progress(run.folder), rng=rng, over=threading.Event(), spent=threading.Event())


@dataclass(frozen=True)
class _Active:
    """An injection in its run; ``injected`` is set once it is."""

    run: RunContext
    injection: Injection
    injected: threading.Event = field(default_factory=threading.Event)

    @property
    def lasts(self) -> bool:
        return self.injected.is_set() and not self.run.over.is_set()


def _inject_group(group: Sequence[_Active]) -> None:
    if len(group) == 1:
        inject(group[0].run, group[0].injection, group[0].injected)
        return
    with ThreadPoolExecutor(len(group), thread_name_prefix="inject") as pool:
        jobs: list[Future[None]] = []
        for before, active in zip([None, *group], group, strict=False):
            job = pool.submit(inject, active.run, active.injection, active.injected, before)
            jobs.append(job)
            while not active.injected.wait(INJECTED_POLL_S) and not job.done():
                pass
    for job in jobs:
        job.result()


def inject(run: RunContext, injection: Injection, injected: threading.Event, before: _Active | None = None) -> None:
    """One fault from aim to heal. ``before`` is the one that it overlaps."""
    with _fed(run):
        _inject(run, injection, injected, before)


def _inject(run: RunContext, injection: Injection, injected: threading.Event, before: _Active | None) -> None:
    fault, journal, name = FAULTS[injection.fault], run.folder.journal, injection.injection
    parameters = fault.parameters_model.model_validate(injection.parameters)
    target: dict[str, Any] | None = None
    try:
        with _held(run, injection) as hold:
            if hold is not None:
                run = replace(run, held=hold.event)
            target = fault.aim(run, parameters)
            planned = InjectionStarted(
                injection=name, fault=fault.name, target=target, parameters=injection.parameters, phase=injection.phase
            )
            journal.append(planned)
            log.info("%s: %s", name, fault.summary)
            fault.inject(run, parameters, target)
            if (strike := None if hold is None else hold.strike()) is not None:
                target["strikes"] = [asdict(strike)]
            journal.append(InjectionInjected(injection=name, target=target))
            checks = [*_still_held(hold), *_overlapped(before)]
        injected.set()
        if strike is not None:
            checks.append(was_in(run, strike, "struck"))
        checks += fault.evidence(run, parameters, target)
        journal.append(InjectionEvidence(injection=name, checks=tuple(checks)))
        for check in checks:
            log.info("%s: %s: %s (%s)", name, check.check, "yes" if check.passed else "NO", check.detail)
    except (FaultError, TestbedError) as error:
        journal.append(InjectionFailed(injection=name, error=str(error)))
        log.warning("%s did not take effect: %s", name, error)
    finally:
        run.over.set()
        if target is not None:
            heal_injection(run.testbed, run.folder, name, fault.name, target)


@contextlib.contextmanager
def _fed(run: RunContext) -> Iterator[None]:
    """While a fault goes on, a job that has committed all that it may have gets a batch more: a quick one would stand still, the
    fault would hit nothing, and its evidence would wait for a commit that cannot come. Those records are taken from what comes later, all
    but the last batch; ``run.spent`` says that there are no more."""
    done = threading.Event()
    thread = threading.Thread(target=_feed, args=(run, done), name="feed", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _feed(run: RunContext, done: threading.Event) -> None:
    gate, progress, batch = Gate(run.folder), Progress(run.folder), run.job.batch_records
    last, idle_since = run.records - batch, None
    moved_at, committed = time.monotonic(), progress.committed()
    while not done.wait(FEED_LOOK_S):
        state = gate.read()
        limit, now = int(state["records"]), time.monotonic()
        if progress.committed() != committed:
            moved_at, committed = now, progress.committed()
        stands = now - moved_at > STANDS_S  # a job that lost what it had to read waits for more
        if limit >= last and committed + batch > limit and now - moved_at > FEED_AFTER_S:
            run.spent.set()
        if limit >= last or (committed + batch <= limit and not stands):  # a generator stops up to half a batch before its limit
            idle_since = None
        elif idle_since is None:
            idle_since = now
        elif now - idle_since > FEED_AFTER_S:
            gate.open_to(min(limit + batch, last), state["ahead"])
            idle_since, moved_at = None, now


def _held(run: RunContext, injection: Injection) -> contextlib.AbstractContextManager[Hold | None]:
    """The job at the step, or in the window, for which the injection waits."""
    if injection.step is not None:
        return held(run, injection.step)
    if injection.window is not None:
        return held_in(run, injection.window, injection.fault, FAULTS[injection.fault].ends_connections)
    return contextlib.nullcontext()


def _still_held(hold: Hold | None) -> list[EvidenceCheck]:
    """That the job was held at the step, or in the window, until the fault was injected; for one that waited for it."""
    if hold is None or hold.still is None:
        return []
    step, batch = hold.event.failpoint, hold.event.batch
    return [EvidenceCheck(f"it was injected while the job was held at {step}", hold.still(), f"in batch {batch}, pid {hold.event.pid}")]


def _overlapped(before: _Active | None) -> list[EvidenceCheck]:
    """That the fault was injected while the one before it lasted, for one that overlaps."""
    if before is None:
        return []
    name = before.injection.injection
    state = "it lasts" if before.lasts else "it was over" if before.injected.is_set() else "it was not injected"
    return [EvidenceCheck(f"it was injected while {name} lasted", before.lasts, state)]


__all__ = ["RunEnded", "inject", "run_schedule"]
