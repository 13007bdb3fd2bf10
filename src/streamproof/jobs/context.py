"""A run as its stages and its faults see it: the folder, the testbed, the job, how far it has come, and until when."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import Aborted, DriverExited, DriverReady, DriverStarted, EvidenceCheck, FailpointHeld, StageFailed
from streamproof.evidence.progress import Progress
from streamproof.jobs.engine import Engine
from streamproof.jobs.job import Job
from streamproof.jobs.profile import JobProfile, Role
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import TestbedError, process_record, same_process, signal_recorded

POLL_S = 0.02
AIM_S = 30.0
READY_S = 90.0


class FaultError(Exception):
    """A fault could not take effect: its target did not appear in time, or refused. The run is then INCONCLUSIVE."""


class RunEnded(Exception):
    """The run was aborted, or another of its stages failed, while this one was waiting."""


@dataclass(frozen=True)
class RunContext:
    """What a fault is injected into: the run, its testbed and job, and choices drawn from the run's seed.

    ``held`` is the process that is held at a step of the protocol while the fault is injected, None without a hold; ``over`` is set once
    what was broken is about to be mended, at the latest when the fault is healed; ``spent`` once the job has committed all that may be sent
    before the end, and so has nothing left to do that a fault could wait for.
    """

    folder: RunFolder
    testbed: Testbed
    job: Job
    engine: Engine
    profile: JobProfile
    progress: Progress
    rng: random.Random
    deadline: float
    records: int
    held: FailpointHeld | None = None
    over: threading.Event = field(default_factory=threading.Event)
    spent: threading.Event = field(default_factory=threading.Event)

    def wait_for(self, what: str, condition: Callable[[], Any], timeout_s: float) -> Any:
        """Wait until ``condition`` gives something true and return it. Raises FaultError after ``timeout_s`` (or at the run's deadline)."""
        until = min(time.monotonic() + timeout_s, self.deadline)
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > until:
                in_time = (
                    f"within {timeout_s:.0f} s"
                    if until < self.deadline
                    else "before the run's time was over (the experiment's `timeout_s`)"
                )
                raise FaultError(f"{what}: not {in_time}")
            self.check_alive()
            time.sleep(POLL_S)

    def eventually(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether ``condition`` comes true within ``timeout_s``."""
        try:
            self.wait_for("", condition, timeout_s)
        except FaultError:
            return False
        return True

    def let_pass(self, seconds: float) -> None:
        """Let so much time pass. Raises as :meth:`wait_for` when the run ends before."""
        until = time.monotonic() + seconds
        self.wait_for(f"{seconds:g} s to pass", lambda: time.monotonic() >= until, seconds + 1)

    def recorded(self, role: Role) -> list[dict[str, Any]]:
        """Who plays a role, as the journal keeps it: processes of this machine, or what the template of the role finds. Waits for one;
        raises FaultError when none appears."""
        found: list[dict[str, Any]] = self.wait_for(f"a process in the role {role}", lambda: self.found(role), AIM_S)
        return found

    def found(self, role: Role) -> list[dict[str, Any]]:
        """The same, of those who play it now: nobody, perhaps. Raises FaultError when the command that finds them fails."""
        if (template := self.testbed.template(role)) is None:
            return [process_record(process) for process in self.engine.processes(self.job, role)]
        try:
            return [*template.found(role, self.about)]
        except TestbedError as error:
            raise FaultError(str(error)) from error

    @property
    def about(self) -> dict[str, str]:
        """What the commands of a template can ask for."""
        return {"run": self.folder.name, "job": self.job.name}

    def kill(self, recorded: Iterable[dict[str, Any]], number: signal.Signals = signal.SIGKILL) -> None:
        """End those who were :meth:`recorded`, by the signal or by the template of their role. Raises FaultError when a command fails."""
        for victim in recorded:
            if (template := self.testbed.template(victim.get("role", ""))) is None:
                signal_recorded([victim], number)
                continue
            try:
                template.kill_one(victim, self.about)
            except TestbedError as error:
                raise FaultError(str(error)) from error

    def gone(self, recorded: Iterable[dict[str, Any]]) -> bool:
        """Whether all of them are gone. Raises FaultError when the command that is to say so fails."""
        try:
            for victim in recorded:
                template = self.testbed.template(victim.get("role", ""))
                if not (same_process(victim) is None if template is None else template.gone(victim, self.about)):
                    return False
        except TestbedError as error:
            raise FaultError(str(error)) from error
        return True

    def goes_on(self, timeout_s: float) -> EvidenceCheck:
        """That the job commits a micro-batch more, within ``timeout_s`` from now."""
        before = self.progress.batches()
        on = self.eventually(lambda: self.progress.batches() > before, timeout_s)
        return EvidenceCheck("the job committed a batch afterwards", on, f"{self.progress.batches()} batches")

    def check_alive(self) -> None:
        """Raises RunEnded when the run was aborted or one of its stages failed."""
        ended = self.folder.journal.last(Aborted, StageFailed)
        if isinstance(ended, Aborted):
            raise RunEnded(ended.reason)
        if isinstance(ended, StageFailed):
            raise RunEnded(f"stage {ended.stage} failed: {ended.error}")

    def start(self) -> int:
        """The number of the driver start that was launched last, ready or not."""
        launched: DriverStarted = self.wait_for("a start of the job", lambda: self.folder.journal.last(DriverStarted), READY_S)
        return launched.start

    def driver(self) -> dict[str, Any]:
        """The driver start that is ready now: its number, application, ui. One that has ended since is not."""

        def ready() -> DriverReady | None:
            newest, ended = self.folder.journal.last(DriverReady), self.folder.journal.last(DriverExited)
            return None if newest is None or (ended is not None and ended.start >= newest.start) else newest

        return asdict(self.wait_for("a driver that is ready", ready, READY_S))
