"""``kill_at_window``: SIGKILL the driver between two steps of its commit protocol, as seen from outside.

The model: a crash at the worst moment, in a job of which nobody knows the code. ``window`` names two steps that follow each other in the
job's trace (``streamproof windows`` lists them). Nothing is left to timing: the message that ends the window is held before its server
gets it, the driver is killed, and the message is thrown away. Where the window ends with a file, the answer to the message that begins it
is held. Between two files nothing can be held: the driver is killed as soon as the first is there, and the evidence says whether that was
in time.

With ``linger_s`` the message is held for a while first. What other threads and processes of the job do meanwhile is done then: a job that
commits an offset while the write that it stands for is still on its way is caught so.

Evidence: by the trace and the files, the step before the window was done before the driver was killed, and the one behind it was not; the
driver's processes are gone; the job was started again and committed a batch.
Checked against: Spark 4.1 (``offsets/N`` and ``commits/N`` are renamed into place), Kafka 4.1, PostgreSQL 16.
"""

from __future__ import annotations

import contextlib
import random
import signal
import statistics
import time
import uuid
from typing import Any

from pydantic import Field, field_validator

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import DRIVER, EvidenceCheck, FaultError, Parameters, RunContext, Unconditional
from streamproof.faults.messages.message_fault import disarmed
from streamproof.faults.process.kill_driver import gone_and_back
from streamproof.jobs import windows
from streamproof.jobs.profile import JobProfile, Role
from streamproof.jobs.windows import Step, Trace
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.messages import Event, NoSuchThing, Rule
from streamproof.testbed.process import signal_recorded

STRIKE_S = 60.0
LOOK_S = 1.0
SETTLED_S, LOOK_AGAIN_S = 0.2, 0.01
"""How long what was sent before a held message may take to be answered."""


class KillAtWindowParameters(Parameters):
    window: str | None = Field(
        None,
        description="The window, as in `INSERT orders > commits`; drawn from those that the job has passed so far when absent",
    )
    linger_s: float = Field(
        0.0,
        ge=0.0,
        le=10.0,
        description="How long the message is held before the kill, in s: what others of the job do meanwhile is done then",
    )

    @field_validator("window")
    @classmethod
    def _of_steps(cls, window: str | None) -> str | None:
        if window is None:
            return None
        after, before = windows.parsed(window)
        for step in (after, before):
            if not windows.is_file(step) and not windows.kind(step):
                raise ValueError(f"there is no step {step!r}; `streamproof windows` lists the windows of a job")
        return f"{after}{windows.ARROW}{before}"


class KillAtWindow(Unconditional):
    name = "kill_at_window"
    summary = "SIGKILL the driver between two steps of its commit protocol, as seen from outside"
    target = "the driver"
    parameters_model: type[Parameters] = KillAtWindowParameters
    of_roles = frozenset({Role.DRIVER})
    occupies = frozenset({DRIVER, "the link to kafka", "the link to postgres"})
    sites = frozenset()

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
        return {"role": self.target, "start": run.driver()["start"], "rule": f"{self.name}-{uuid.uuid4().hex[:8]}"}

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        target["window"] = window = parameters.window or _drawn(run)
        after, before = windows.parsed(window)
        if windows.is_file(after) and windows.is_file(before):
            self._kill_after_a_file(run, target, after)
            return
        target["after"] = run.testbed.messages.state().last_event
        side, step = ("answer", after) if windows.is_file(before) else ("request", before)
        run.testbed.messages.arm(Rule(target["rule"], windows.kind(step), "hold", every=1, side=side))  # type: ignore[arg-type]
        aiming, until = _Aim(run, after, before), min(time.monotonic() + STRIKE_S, run.deadline)
        while time.monotonic() < until:
            run.check_alive()
            for event in run.testbed.messages.events(target["after"], target["rule"], wait_s=LOOK_S):
                target["after"] = event.number
                if event.kind != "held":
                    continue
                if aiming.fits(event):
                    if parameters.linger_s:
                        target["held_ns"] = time.time_ns()
                        run.let_pass(parameters.linger_s)
                    self._strike(run, target, event)
                    return
                _release(run, event)
        raise FaultError(f"the window {window}: not reached within {STRIKE_S:.0f} s; the job passed {aiming.passed()}")

    def _kill_after_a_file(self, run: RunContext, target: dict[str, Any], after: str) -> None:
        """Between two files no message can be held: the driver is killed as soon as the first of them is there."""
        armed_ns = time.time_ns()

        def there() -> bool:
            return any(step.name == after and step.done_ns > armed_ns for step in windows.files(run.job))

        run.wait_for(f"a new file {after}", there, STRIKE_S)
        _kill(run, target)

    def _strike(self, run: RunContext, target: dict[str, Any], event: Event) -> None:
        _kill(run, target)
        with contextlib.suppress(NoSuchThing):
            run.testbed.messages.drop(event.held)
        run.testbed.messages.disarm(target["rule"])

    def evidence(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> list[EvidenceCheck]:
        struck_ns = windows.struck_ns(target)
        assert struck_ns is not None, "it killed the driver"
        return [_hit(run, target["window"], struck_ns), *gone_and_back(run, target)]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        return [disarmed(testbed, target["rule"])]


def _kill(run: RunContext, target: dict[str, Any]) -> None:
    target["killed"] = run.recorded(Role.DRIVER)
    signal_recorded(target["killed"], signal.SIGKILL)
    target["killed_ns"] = time.time_ns()


class _Aim:
    """Whether a message that is held is the one at the edge of the window."""

    def __init__(self, run: RunContext, after: str, before: str) -> None:
        self._run, self._after, self._before = run, after, before
        self._trace = Trace(run.job)

    def fits(self, event: Event) -> bool:
        message = event.message
        steps = self.steps()
        if message is None or self._trace.name(message) != (self._after if windows.is_file(self._before) else self._before):
            return False
        if not windows.is_file(self._before):
            until = time.monotonic() + SETTLED_S
            while self._trace.outstanding(message) and time.monotonic() < until:
                time.sleep(LOOK_AGAIN_S)
                steps = self.steps()
            return bool(steps) and steps[-1].name == self._after
        usual = list(windows.runs_of(steps, self._after, self._before))
        in_a_row = 1 + _trailing(steps, self._after)
        return bool(usual) and in_a_row >= statistics.median_low(usual)

    def steps(self) -> list[Step]:
        self._run.testbed.messages.state()  # writes what is buffered
        return self._trace.all_steps()

    def passed(self) -> str:
        return ", ".join(window.name for window in windows.windows(self.steps())) or "none"


def _drawn(run: RunContext) -> str:
    """A window that the job has passed again and again, drawn from the seed evenly over windows, not over time."""
    aiming = _Aim(run, "", "")
    found = run.wait_for(
        "a window that the job passes", lambda: sorted(window.name for window in windows.windows(aiming.steps())), STRIKE_S
    )
    return str(run.rng.choice(found))


def _trailing(steps: list[Step], name: str) -> int:
    """How many of the last steps have this name."""
    count = 0
    for step in reversed(steps):
        if step.name != name:
            break
        count += 1
    return count


def _release(run: RunContext, event: Event) -> None:
    with contextlib.suppress(NoSuchThing):
        run.testbed.messages.release(event.held)


def _hit(run: RunContext, window: str, killed_ns: int) -> EvidenceCheck:
    """That the driver was killed in the window: what was the last step before, and the first one behind."""
    run.testbed.messages.state()
    last = windows.last_before(Trace(run.job).all_steps(), killed_ns)
    after, _ = windows.parsed(window)
    found = last is not None and last.name == after
    detail = (
        "nothing was done before" if last is None else f"the last step was {last.name}, {(killed_ns - last.done_ns) / 1e6:.0f} ms before"
    )
    return EvidenceCheck(f"it was killed in the window {window}", found, detail)
