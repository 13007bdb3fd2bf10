"""What faults share that strike the driver between two steps of its commit protocol, as seen from outside.

``window`` names two steps that follow each other in the job's trace (``streamproof windows`` lists them), or several such pairs: then
the one is meant to which the job comes first. Nothing is left to timing: a message at the window's edge is held, and the driver is struck
while it waits.
"""

from __future__ import annotations

import contextlib
import random
import signal
import statistics
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import DriverStarted, InjectionInjected, fault_of
from streamproof.faults.fault import DRIVER, LINKS, EvidenceCheck, FaultError, Parameters, RunContext, Unconditional
from streamproof.faults.messages.message_fault import disarmed
from streamproof.jobs import windows
from streamproof.jobs.profile import JobProfile, Role
from streamproof.jobs.windows import Step, Strike, Trace
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.messages import Event, NoSuchThing, Rule, Side
from streamproof.testbed.process import signal_recorded

STRIKE_S = 60.0
STRIKE_BATCHES = 12
"""How many batches a job may commit without having come to a window: one that it passes only by luck would take what others need."""
STARTED_S = 60.0
LOOK_S = 1.0
BARE = 4
"""Bytes that a file of Parquet has before there is anything in it."""
WATCH_S = 0.002
SETTLED_S, CONCURRENT_S, LOOK_AGAIN_S = 0.2, 0.1, 0.01
"""How long what was sent before a held message may take to be answered, and what a job that does several things at once may take to send
beside it."""


class WindowParameters(Parameters):
    window: Annotated[str | None, AfterValidator(windows.named)] = Field(
        None,
        description="The window, as in `INSERT orders > commits`, or several with ` or ` between them: the one to which the job comes "
        "first, and in which this fault has not struck yet. When absent it is drawn from those that the job has passed so far, and in "
        "which this run has not struck yet",
    )


class WindowFault(Unconditional):
    name: str
    target = "the driver"
    of_roles = frozenset({Role.DRIVER})
    occupies = frozenset({DRIVER}) | LINKS
    sites = frozenset()
    from_the_start = True

    def reads(self, parameters: Any) -> frozenset[str]:
        return frozenset({"kafka", "postgres"})

    def outside(self, parameters: Any) -> frozenset[embedded.Role] | None:
        return None

    def batches(self, parameters: Any) -> int:
        return 3

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Not for chance: which windows a job has is known only once it was seen at work."""
        return None

    def aim(self, run: RunContext, parameters: Any) -> dict[str, Any]:
        start = run.driver()["start"] if run.progress.batches() else run.start()
        return {"role": self.target, "start": start, "rule": f"{self.name}-{uuid.uuid4().hex[:8]}"}

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        return [disarmed(testbed, target["rule"])]


def hold_at(run: RunContext, target: dict[str, Any], edges: Mapping[str, windows.Edge]) -> tuple[str, Event]:
    """Hold the job in the one of the windows to which it comes first, by the message at its edge; what is held elsewhere goes on. Returns
    which window it is. Raises FaultError when the job does not come there in time."""
    target["after"] = run.testbed.messages.state().last_event
    kinds = dict.fromkeys((side, windows.kind(step)) for side, step in edges.values())
    sides = {target["rule"] if not number else f"{target['rule']}.{number}": at for number, at in enumerate(kinds)}
    for rule, (side, message) in sides.items():
        run.testbed.messages.arm(Rule(rule, message, "hold", every=1, side=side))
    aiming, until, committed = _Aim(run, edges), min(time.monotonic() + STRIKE_S, run.deadline), run.progress.committed()
    in_time = f"within {STRIKE_S:.0f} s"
    while time.monotonic() < until:
        run.check_alive()
        if run.spent.is_set():
            in_time = "with all that there was for it to read"
            break
        if run.progress.committed() > committed + STRIKE_BATCHES * run.job.batch_records:
            in_time = f"in {STRIKE_BATCHES} batches"
            break
        for event in run.testbed.messages.events(target["after"], wait_s=LOOK_S):
            target["after"] = event.number
            if event.kind != "held" or event.rule not in sides:
                continue
            if (window := aiming.fits(event, sides[event.rule][0])) is not None:
                return window, event
            release(run, event.held)
    raise FaultError(f"the window {windows.OR.join(edges)}: not reached {in_time}; the job passed {aiming.passed()}")


def come_to(run: RunContext, target: dict[str, Any], names: Sequence[str]) -> tuple[str, Event | None]:
    """Wait until the job is in one of the windows, and hold the message at its edge; between two files there is none. Raises FaultError
    when the job does not come there in time."""
    if edges := windows.edges(names):
        return hold_at(run, target, edges)
    wait_for_a_file(run, windows.parsed(names[0])[0])
    return names[0], None


def meant(run: RunContext, fault: str, window: str) -> list[str]:
    """Of the windows that a trigger names, those in which this fault has not struck in this run, as long as there is one."""
    return _new(windows.alternatives(window), run, fault)


def _new(names: list[str], run: RunContext, fault: str | None = None) -> list[str]:
    """The windows in which the run has not struck, by the fault or by any, as long as there is one; else all."""
    injected = run.folder.journal.all(InjectionInjected)
    struck = {strike.window for event in injected if fault in (None, fault_of(event.injection)) for strike in windows.strikes(event.target)}
    return [name for name in names if name not in struck] or names


def throw_away(run: RunContext, event: Event | None) -> None:
    """Of what was held, as of a message that was on its way when its connection ended."""
    if event is not None:
        with contextlib.suppress(NoSuchThing):
            run.testbed.messages.drop(event.held)


def release(run: RunContext, held: int) -> None:
    with contextlib.suppress(NoSuchThing):
        run.testbed.messages.release(held)


class _Aim:
    """At the edge of which of the windows a message is that is held."""

    def __init__(self, run: RunContext, edges: Mapping[str, windows.Edge]) -> None:
        self._run, self._edges = run, edges
        self._trace = Trace(run.job)
        self._first = not run.progress.batches()  # how the job goes on from a step is not known then

    def fits(self, event: Event, side: Side) -> str | None:
        message, steps = event.message, self.steps()
        if message is None:
            return None
        name = self._trace.name(message)
        there = {windows.parsed(window): window for window, at in self._edges.items() if at == (side, name)}
        if side == "request":
            begun, by_step = time.monotonic(), {after: window for (after, _), window in there.items()}
            while there and ((waits := self._trace.outstanding(message)) or not steps or steps[-1].name not in by_step):
                if time.monotonic() > begun + (SETTLED_S if waits else CONCURRENT_S):
                    break
                time.sleep(LOOK_AGAIN_S)
                steps = self.steps()
            return by_step.get(steps[-1].name) if steps else None
        return next((window for steps_of, window in there.items() if self._often_enough(steps, *steps_of)), None)

    def _often_enough(self, steps: list[Step], after: str, before: str) -> bool:
        """Whether the step that was done now was done as often in a row as it usually is before the other one comes."""
        usual = list(windows.runs_of(steps, after, before))
        in_a_row = 1 + _trailing(steps, after)
        return in_a_row >= statistics.median_low(usual) if usual else self._first

    def steps(self) -> list[Step]:
        self._run.testbed.messages.state()  # writes what is buffered
        return self._trace.all_steps()

    def passed(self) -> str:
        return ", ".join(window.name for window in windows.windows(self.steps())) or "none"


def wait_for_a_file(run: RunContext, step: str) -> None:
    """Until there is a new file of that kind that is whole: one that has not grown since the last look."""
    armed_ns, sizes = time.time_ns(), dict[Path, int]()

    def there() -> bool:
        folders, look_round = windows.folders_of(run.job, step), time.monotonic() + LOOK_S
        while time.monotonic() < look_round:
            new = windows.new_files(run.job, step, armed_ns, folders)
            if any(size > BARE and sizes.get(path) == size for path, size in new.items()):
                return True
            sizes.update(new)
            time.sleep(WATCH_S)
        return False

    run.wait_for(f"a new file {step}", there, STRIKE_S)


def stop_between_files(run: RunContext, window: str) -> None:
    """Stop the driver between two files. One that was further when it was looked at goes on, and is stopped in another batch. Raises
    FaultError when it is not found there in time; then it stands still no more."""
    aiming, until = _Aim(run, {}), min(time.monotonic() + STRIKE_S, run.deadline)
    after, _ = windows.parsed(window)
    while time.monotonic() < until:
        processes = run.recorded(Role.DRIVER)
        wait_for_a_file(run, after)
        signal_recorded(processes, signal.SIGSTOP)
        found = False
        try:
            last = windows.last_before(aiming.steps(), time.time_ns())
            found = last is not None and last.name == after
        finally:
            if not found:
                signal_recorded(processes, signal.SIGCONT)
        if found:
            return
    raise FaultError(f"the window {window}: the driver was not found there within {STRIKE_S:.0f} s")


def drawn(run: RunContext) -> str:
    """A window that the job has passed again and again, drawn from the seed evenly over windows, not over time; one in which this run has
    not struck yet, as long as there is one."""
    aiming = _Aim(run, {})
    passed = run.wait_for(
        "a window that the job passes", lambda: sorted(window.name for window in windows.windows(aiming.steps())), STRIKE_S
    )
    return str(run.rng.choice(_new(passed, run)))


def _trailing(steps: list[Step], name: str) -> int:
    """How many of the last steps have this name."""
    count = 0
    for step in reversed(steps):
        if step.name != name:
            break
        count += 1
    return count


def next_start(run: RunContext, start: int) -> int:
    """The number of the start that takes the place of ``start``. Raises FaultError when none comes."""

    def launched() -> int | None:
        event = run.folder.journal.last(DriverStarted)
        return event.start if event is not None and event.start > start else None

    found: int = run.wait_for("another start of the job", launched, STARTED_S)
    return found


def was_in(run: RunContext, strike: Strike, what: str) -> EvidenceCheck:
    """That the driver was struck, ``what`` says how, in the window: which was the last step before."""
    run.testbed.messages.state()
    last = windows.last_before(Trace(run.job).all_steps(), strike.at_ns)
    after, _ = windows.parsed(strike.window)
    found = last is not None and last.name == after
    before = "nothing was done" if last is None else f"the last step was {last.name}, {(strike.at_ns - last.done_ns) / 1e6:.0f} ms"
    return EvidenceCheck(f"it was {what} in the window {strike.window}", found, f"{before} before")
