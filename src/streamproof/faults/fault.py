"""What a fault is.

A fault goes through four moments, each journaled by the fault injector: it *aims* (finds out all that healing will need), *injects* (its
target is found by role), shows *evidence* (that the system under test changed, not that a call returned), and *heals* (idempotent, read
back). Aiming is journaled before injecting, so that whatever a killed runner leaves behind can be healed from the journal alone.

A fault answers to four parties, and each knows only the protocol that it needs: who lists it (:class:`Described`), who decides whether an
experiment may have it (:class:`Admitted`), who plans when it is injected (:class:`Planned`), and who injects it (:class:`Injectable`).
"""

from __future__ import annotations

import random
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import EvidenceCheck
from streamproof.jobs.context import FaultError, RunContext
from streamproof.jobs.failpoint import Site
from streamproof.jobs.profile import JobProfile, Role, Trait
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.anomaly import Anomaly

# What a fault may occupy while it lasts, besides servers and links by their names.
DRIVER = "the driver"
EXECUTORS = "the executors"
FAILPOINTS = "the failpoints"
STALL = "a stall of the job"
LINKS = frozenset({"the link to kafka", "the link to postgres"})


class Parameters(BaseModel):
    """A fault's own parameters; a fault without any uses this as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Described(Protocol):
    """What is listed of a fault."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def parameters_model(self) -> type[Parameters]: ...


class Admitted(Protocol):
    """Which experiments may have it."""

    @property
    def least_brokers(self) -> int:
        """How many brokers Kafka must have for this fault to make sense."""

    @property
    def sites(self) -> frozenset[Site]:
        """Where the job may be held for it, at a step of its protocol."""

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        """Raises ValueError when that job has not what this fault needs: a role, a link, a trait, a step."""

    def prevented(self) -> str | None:
        """Why this machine does not allow it, and what to do; None when it does."""

    def outside(self, parameters: Any) -> frozenset[embedded.Way] | None:
        """Where servers were not started here: which ways to them this fault breaks. Empty when it touches nothing of them but the run's
        own topics and tables, None when it breaks more than may ever be allowed there."""

    def here_only(self, parameters: Any) -> frozenset[Role]:
        """The roles whose processes must be on this machine, because this fault does more to them than a template's command can."""

    def provokes(self, profile: JobProfile, parameters: dict[str, Any]) -> list[Anomaly]:
        """The anomalies that this job *must* show after this fault."""


class Planned(Protocol):
    """When it is injected, and beside which others."""

    @property
    def occupies(self) -> frozenset[str] | None:
        """What it needs for itself: two faults that name the same cannot overlap. None for everything: it is injected alone."""

    def needs(self, parameters: Any) -> frozenset[str] | None:
        """What it occupies with these parameters."""

    @property
    def from_the_start(self) -> bool:
        """Whether it can be injected before the job has committed anything."""

    @property
    def ends_connections(self) -> bool:
        """Whether it ends connections of the job: a message that is held while it is injected never arrives then."""

    @property
    def background(self) -> bool:
        """Whether it lasts for some micro-batches while the job goes on, so that others can be injected under it."""

    @property
    def starts_another(self) -> bool:
        """Whether another start of the job runs beside the first one while it lasts: each must leave room for the other."""

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Parameters for a random schedule, from small ranges; None when it is not for chance: the job would have to show an anomaly, or
        the fault may outlast a run."""

    def reads(self, parameters: Any) -> frozenset[str]:
        """The servers (``kafka``, ``postgres``) whose messages it reads: a run puts message links before them."""

    def batches(self, parameters: Any) -> int:
        """How many micro-batches must still come after this fault was injected, for its evidence."""


class Injectable(Protocol):
    """What the fault injector and the healer call. The target is what the journal keeps."""

    def aim(self, run: RunContext, parameters: Any) -> dict[str, Any]:
        """Find the target. Everything that evidence and heal will need goes into what is returned."""

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None: ...

    def evidence(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> list[EvidenceCheck]: ...

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """Undo the fault and read back. Needs nothing but the journaled target; may be called at any time, and repeated."""


class Fault(Described, Admitted, Planned, Injectable, Protocol):
    """One way to break a running job."""


class Ordinary:
    """What most faults answer. ``of_roles``, ``of_links`` and ``of_traits`` are what a job must have so that this fault can be injected; a
    fault that says nothing else does not overlap with any."""

    name: str
    of_roles: frozenset[Role] = frozenset()
    of_links: frozenset[str] = frozenset()
    of_traits: frozenset[Trait] = frozenset()
    least_brokers = 1
    sites: frozenset[Site] = frozenset({Site.DRIVER, Site.TASK, Site.EXECUTOR, Site.WATCHED})
    background: bool = False
    from_the_start: bool = False
    ends_connections: bool = False
    starts_another: bool = False

    @property
    def occupies(self) -> frozenset[str] | None:
        return None

    def needs(self, parameters: Any) -> frozenset[str] | None:
        return self.occupies

    def reads(self, parameters: Any) -> frozenset[str]:
        return frozenset()

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        """That the job has the roles, links and traits."""
        wanting = [member.value for member in sorted(self.of_roles - profile.roles)]
        wanting += [f"link to {server}" for server in sorted(self.of_links - profile.links)]
        wanting += [member.value for member in sorted(self.of_traits - profile.traits)]
        if wanting:
            raise ValueError(f"{self.name}: a job with {profile.name!r} has no {' and no '.join(wanting)}")

    def prevented(self) -> str | None:
        return None

    def outside(self, parameters: Any) -> frozenset[embedded.Way] | None:
        """Unless a fault says otherwise it is only for what was started here."""
        return None

    def here_only(self, parameters: Any) -> frozenset[Role]:
        return self.of_roles

    def provokes(self, profile: JobProfile, parameters: dict[str, Any]) -> list[Anomaly]:
        return []

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        return {}


class Unconditional(Ordinary):
    """The common case: it promises no anomaly, and shows its evidence within two micro-batches."""

    def batches(self, parameters: Any) -> int:
        return 2


__all__ = [
    "DRIVER",
    "EXECUTORS",
    "FAILPOINTS",
    "STALL",
    "EvidenceCheck",
    "Fault",
    "FaultError",
    "Injectable",
    "Ordinary",
    "Parameters",
    "Planned",
    "RunContext",
    "Unconditional",
]
