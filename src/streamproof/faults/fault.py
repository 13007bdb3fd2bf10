"""What a fault is, and the scene it strikes in.

A fault goes through four moments, each journaled by the conductor: it *aims* (finds out all that healing will need), *injects* (what it
strikes is found by role), shows *evidence* (that the system under test changed, not that a call returned), and *heals* (idempotent,
read back). Aiming is journaled before injecting, so that whatever a killed runner leaves behind can be healed from the journal alone.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from streamproof.engines.spark.failpoints import Site
from streamproof.engines.spark.job import Job
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import Aborted, DriverExited, DriverReady, FailpointHeld, StageFailed
from streamproof.evidence.progress import Progress
from streamproof.testbed.embedded import Role, Testbed
from streamproof.verdict.anomaly import Anomaly

POLL_S = 0.02
READY_S = 90.0

# What a fault may need for itself while it lasts, beside servers and links by their names.
DRIVER = "the driver"
EXECUTORS = "the executors"
FAILPOINTS = "the failpoints"
STANDSTILL = "the job's standstill"


class FaultError(Exception):
    """A fault could not strike: its target did not appear in time, or refused. The run is then INCONCLUSIVE."""


class RunEnded(Exception):
    """The run was aborted, or another of its steps failed, while this one was waiting."""


@dataclass(frozen=True)
class Claim:
    """One checked statement about the system under test."""

    claim: str
    holds: bool
    detail: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Parameters(BaseModel):
    """A fault's own parameters; a fault without any uses this as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Scene:
    """Where a fault strikes: the run, its testbed and job, and choices drawn from the run's seed.

    ``stands`` tells who stands still at which step of the protocol while the fault is injected, if it waited for one; ``over`` is set once
    what was broken is about to be mended, at the latest when the fault is healed.
    """

    folder: RunFolder
    testbed: Testbed
    job: Job
    progress: Progress
    rng: random.Random
    deadline: float
    records: int
    stands: FailpointHeld | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def wait_for(self, what: str, condition: Callable[[], Any], timeout_s: float) -> Any:
        """Wait until ``condition`` gives something true and return it. Raises FaultError after ``timeout_s`` (or at the run's deadline)."""
        until = min(time.monotonic() + timeout_s, self.deadline)
        while True:
            found = condition()
            if found:
                return found
            if time.monotonic() > until:
                raise FaultError(f"{what}: not within {timeout_s:.0f} s")
            self.check_alive()
            time.sleep(POLL_S)

    def eventually(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether ``condition`` comes true within ``timeout_s``."""
        try:
            self.wait_for("", condition, timeout_s)
        except FaultError:
            return False
        return True

    def goes_on(self, timeout_s: float) -> Claim:
        """That the job commits a micro-batch more, within ``timeout_s`` from now."""
        before = self.progress.batches()
        on = self.eventually(lambda: self.progress.batches() > before, timeout_s)
        return Claim("the job committed a batch afterwards", on, f"{self.progress.batches()} batches")

    def check_alive(self) -> None:
        """Raises RunEnded when the run was aborted or one of its steps failed."""
        ended = self.folder.journal.last(Aborted, StageFailed)
        if isinstance(ended, Aborted):
            raise RunEnded(ended.reason)
        if isinstance(ended, StageFailed):
            raise RunEnded(f"step {ended.stage} failed: {ended.error}")

    def driver(self) -> dict[str, Any]:
        """The driver start that is ready now: its number, application, ui. One that has ended since is not."""

        def ready() -> DriverReady | None:
            found, ended = self.folder.journal.last(DriverReady), self.folder.journal.last(DriverExited)
            return None if found is None or (ended is not None and ended.start >= found.start) else found

        return asdict(self.wait_for("a driver that is ready", ready, READY_S))


class Fault(Protocol):
    """One way to break a running job."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def parameters_model(self) -> type[Parameters]: ...

    @property
    def least_brokers(self) -> int:
        """How many brokers Kafka must have for this fault to make sense."""

    @property
    def occupies(self) -> frozenset[str] | None:
        """What it needs for itself: two faults that name the same cannot overlap. None for everything: it strikes alone."""

    def needs(self, parameters: Any) -> frozenset[str] | None:
        """What it occupies with these parameters."""

    @property
    def sites(self) -> frozenset[Site]:
        """Where the job may stand still for it, at a step of its protocol."""

    @property
    def background(self) -> bool:
        """Whether it lasts for some micro-batches while the job goes on, so that others can strike under it."""

    def draw(self, rng: random.Random, strategy: str) -> dict[str, Any] | None:
        """Parameters for a random schedule, from small ranges; None when no job with that strategy is to be struck by chance: it would have
        to show an anomaly, or the fault may outlast a run."""

    def batches(self, parameters: Any) -> int:
        """How many micro-batches must still come after this fault struck, for its evidence."""

    def check(self, strategy: str, parameters: dict[str, Any]) -> None:
        """Raises ValueError when this fault cannot strike a job with that strategy."""

    def prevented(self) -> str | None:
        """Why this machine does not allow it, and what to do; None when it does."""

    def outside(self, parameters: Any) -> frozenset[Role] | None:
        """Where Kafka was not started here: whose way to it this fault strikes. Empty when it touches nothing of Kafka but the run's own
        topics, None when it strikes more than may ever be allowed there."""

    def provokes(self, strategy: str, parameters: dict[str, Any]) -> list[Anomaly]:
        """The anomalies that a job with that strategy *must* show after this fault."""

    def aim(self, scene: Scene, parameters: Any) -> dict[str, Any]:
        """Find the target. Everything that evidence and heal will need goes into what is returned."""

    def inject(self, scene: Scene, parameters: Any, target: dict[str, Any]) -> None: ...

    def evidence(self, scene: Scene, parameters: Any, target: dict[str, Any]) -> list[Claim]: ...

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[Claim]:
        """Undo the fault and read back. Needs nothing but the journaled target; may be called at any time, and repeated."""


class Ordinary:
    """What most faults say of their place among others. A fault that says nothing else does not overlap with any."""

    least_brokers = 1
    sites: frozenset[Site] = frozenset({Site.DRIVER, Site.TASK, Site.WATCHED})
    background: bool = False

    @property
    def occupies(self) -> frozenset[str] | None:
        return None

    def needs(self, parameters: Any) -> frozenset[str] | None:
        return self.occupies

    def prevented(self) -> str | None:
        return None

    def outside(self, parameters: Any) -> frozenset[Role] | None:
        """Unless a fault says otherwise it is only for what was started here."""
        return None

    def draw(self, rng: random.Random, strategy: str) -> dict[str, Any] | None:
        return {}


class Unconditional(Ordinary):
    """The common case: strikes any strategy, promises no anomaly, and shows its evidence within two micro-batches."""

    def batches(self, parameters: Any) -> int:
        return 2

    def check(self, strategy: str, parameters: dict[str, Any]) -> None:
        return

    def provokes(self, strategy: str, parameters: dict[str, Any]) -> list[Anomaly]:
        return []
