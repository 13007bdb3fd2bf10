"""What faults of a container share: a server of the testbed is broken with all that is around it, by the container engine.

The container is found by the role that it plays in the stack, and by the stack's own project, so that no other container can be meant.
Evidence is what the engine says of it, and what a probe on the stack's network is answered.
"""

from __future__ import annotations

import random
from typing import Any, Literal

from pydantic import Field

from streamproof.faults.fault import STALL, EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.outage import EVIDENCE_S, Outage, OutageParameters, server_answers
from streamproof.jobs.profile import KAFKA, POSTGRES, JobProfile
from streamproof.testbed import containers, embedded
from streamproof.testbed.embedded import POSTGRES_SERVER, Testbed, Way


class ContainerParameters(OutageParameters):
    container: Literal["kafka", "postgres"] = Field("kafka", description="Which container of the stack, by its service's name")


class ContainerOutage(Outage):
    """Subclasses say what is done to the container, and what the engine says of it then."""

    what = "the container"
    target = "a container of the stack"
    parameters_model: type[Parameters] = ContainerParameters
    occupies = frozenset({"kafka", "postgres", "the link to kafka", "the link to postgres", STALL})

    def prevented(self) -> str | None:
        return containers.prevented()

    def outside(self, parameters: Any) -> frozenset[Way] | None:
        return None if parameters.container == KAFKA else frozenset({POSTGRES_SERVER} if parameters.container == POSTGRES else ())

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Not for chance: a schedule is drawn where the run may be planned for another machine."""
        return None

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        super().check(profile, parameters)
        if parameters.get("container") == POSTGRES and POSTGRES not in profile.links:
            raise ValueError(f"{self.name}: a job with {profile.name!r} has no link to {POSTGRES}")

    def aim(self, run: RunContext, parameters: Any) -> dict[str, Any]:
        if parameters.container == KAFKA and len(run.testbed.kafka) > 1:
            raise FaultError(f"{self.name} takes all of Kafka away, and here are {len(run.testbed.kafka)} brokers: use kill_leader")
        container = containers.of(parameters.container)
        return {
            "role": self.target,
            "server": parameters.container,
            "container": container.name,
            "started": containers.state(parameters.container)["StartedAt"],
            "networks": containers.networks(parameters.container),
        }

    def answers(self, testbed: Testbed, target: dict[str, Any]) -> list[bool]:
        return server_answers(testbed, target["server"])

    def took_effect(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        run.eventually(lambda: self.broken(target), EVIDENCE_S)
        said = containers.state(target["server"])
        on = ", ".join(containers.networks(target["server"])) or "no network"
        detail = f"{target['container']}: {said['Status']}, exit code {said['ExitCode']}, on {on}"
        return [EvidenceCheck(f"the container engine says that it is {self.is_called}", self.broken(target), detail)]

    is_called: str
    """What it is then, in a word."""

    def broken(self, target: dict[str, Any]) -> bool:
        """Whether the engine says so."""
        raise NotImplementedError

    def undo(self, testbed: Testbed, target: dict[str, Any]) -> None:
        """Bring the container back, then its server."""
        containers.bring_back(target["server"])
        embedded.up()


__all__ = ["ContainerOutage"]
