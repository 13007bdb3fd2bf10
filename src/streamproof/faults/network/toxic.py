"""Toxics: a link that works, but badly. Toxiproxy puts a *toxic* on the proxy between the pipeline and a server.

Each fault, a file of its own, names the toxic, on which streams it is put, and how a probe feels it. The probe goes the pipeline's own way
and is measured before and during, so that a toxic counts only when data really came later, slower, or not at all. Toxicity is always 1.0:
Toxiproxy draws it from no seed, so any randomness belongs to the schedule.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.faults.network import kafka_link
from streamproof.faults.network.kafka_link import OfRole, present
from streamproof.jobs.profile import KAFKA, JobProfile
from streamproof.testbed import probes
from streamproof.testbed.embedded import POSTGRES_PROXY, Role, Testbed, Way
from streamproof.testbed.probes import Echo

BATCH_S = 180.0
"""A driver that is killed meanwhile may take most of it to start again, where the machine has other work."""
DOWNSTREAM = ("downstream",)
BOTH_STREAMS = ("upstream", "downstream")


@dataclass(frozen=True)
class Link:
    """A way of the pipeline to a server: its proxy, where that listens, and for PostgreSQL how to log in there."""

    proxy: str
    address: str
    conninfo: str | None = None

    def echo(self) -> AbstractContextManager[Echo]:
        return probes.kafka_echo(self.address) if self.conninfo is None else probes.postgres_echo(self.conninfo)


def links(testbed: Testbed) -> dict[str, Link]:
    """Every link of the pipeline, by its proxy's name."""
    return {
        name: Link(name, address, testbed.pipeline_postgres if name == POSTGRES_PROXY else None) for name, address in testbed.links.items()
    }


def _probed(testbed: Testbed, spared: dict[str, str]) -> dict[str, Link]:
    """Every link that can be broken, and the ways that are ``spared``: to a Kafka that somebody else runs they may lead past any proxy."""
    return {**{name: Link(name, address) for name, address in spared.items()}, **links(testbed)}


class ToxicParameters(OfRole):
    link: Literal["kafka", "postgres"] = Field("kafka", description="The link that it is put on: kafka, or postgres where the sink is that")
    batches: int = Field(2, ge=1, le=100, description="How many micro-batches are committed before it is healed")

    @field_validator("link")
    @classmethod
    def _only_kafka_is_reached_by_role(cls, link: str, info: ValidationInfo) -> str:
        if link == "postgres" and info.data.get("role", "pipeline") != "pipeline":
            raise ValueError("expected kafka with a `role`: driver and executors share their way to postgres")
        return link


class Toxic(Unconditional):
    """Subclasses say what a probe measures, in a unit of their own, and what it must have come to."""

    kind: ClassVar[str]
    streams: ClassVar[tuple[str, ...]] = BOTH_STREAMS
    name: str
    summary: str
    target: str = "the link between the pipeline and Kafka, or PostgreSQL"
    parameters_model: type[Parameters] = ToxicParameters

    occupies = frozenset({"the link to kafka"})
    background = True

    def needs(self, parameters: Any) -> frozenset[str]:
        return frozenset({f"the link to {self.link(parameters)}"})

    def outside(self, parameters: Any) -> frozenset[Way]:
        return frozenset({"postgres"}) if self.link(parameters) == "postgres" else kafka_link.ways(self.role(parameters))

    def link(self, parameters: Any) -> str:
        """The server to which the link leads."""
        return str(parameters.link)

    def role(self, parameters: Any) -> Role:
        """Whose way to Kafka it is put on."""
        role: Role = parameters.role
        return role

    def proxies(self, testbed: Testbed, parameters: Any) -> list[str]:
        """The proxies that it is put on."""
        return [POSTGRES_PROXY] if self.link(parameters) == "postgres" else testbed.kafka_proxies(self.role(parameters))

    def attributes(self, parameters: Any) -> dict[str, int]:
        """What Toxiproxy is told, in its own names."""
        raise NotImplementedError

    def measure(self, link: Link, parameters: Any) -> float:
        """What a probe on the link measures now."""
        raise NotImplementedError

    def felt(self, parameters: Any, before: float, during: float) -> EvidenceCheck:
        """That the probe felt it."""
        raise NotImplementedError

    def batches(self, parameters: Any) -> int:
        return int(parameters.batches) + 2

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        super().check(profile, parameters)
        if (server := parameters.get("link", KAFKA)) not in profile.links:
            raise ValueError(f"{self.name}: a job with {profile.name!r} has no link to {server}")
        kafka_link.check(self.name, profile, parameters)

    def aim(self, run: RunContext, parameters: Any) -> dict[str, Any]:
        toxics = {f"streamproof-{self.kind}-{stream}": stream for stream in self.streams}
        proxies, role = self.proxies(run.testbed, parameters), self.role(parameters)
        spared = kafka_link.spared(run.testbed, role)
        links = _probed(run.testbed, spared)
        before = {proxy: round(self.measure(links[proxy], parameters), 3) for proxy in (*proxies, *spared)}
        connections = kafka_link.connections(run, role)
        return {"role": self.target, "proxies": proxies, "before": before, "toxics": toxics, "connections": connections}

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        for proxy in target["proxies"]:
            for toxic, stream in target["toxics"].items():
                run.testbed.proxies.add(proxy, toxic, self.kind, stream, self.attributes(parameters))

    def evidence(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> list[EvidenceCheck]:
        begin = run.progress.batches() + 1  # the batch in flight began without it
        links = _probed(run.testbed, kafka_link.spared(run.testbed, self.role(parameters)))
        attributes, checks = self.attributes(parameters), kafka_link.checks(target["connections"])
        for proxy, before in target["before"].items():
            felt = self.felt(parameters, before, self.measure(links[proxy], parameters))
            if proxy not in target["proxies"]:
                checks.append(EvidenceCheck(f"through {proxy} nothing is felt", not felt.passed, felt.detail))
                continue
            toxics = run.testbed.proxies.toxics(proxy)
            there = all(toxics.get(toxic) == attributes for toxic in target["toxics"])
            checks += [
                EvidenceCheck(f"the toxic on {proxy} reads back", there, f"{toxics}"),
                EvidenceCheck(f"through {proxy} {felt.check}", felt.passed, felt.detail),
            ]
        return [*checks, self.took_effect(run, parameters, target, begin)]

    def took_effect(self, run: RunContext, parameters: Any, target: dict[str, Any], begin: int) -> EvidenceCheck:
        """What it does to the job: as a rule the job goes on. ``begin`` is how many micro-batches had begun without it."""
        under = run.eventually(lambda: run.progress.batches() >= begin + parameters.batches, BATCH_S)
        return EvidenceCheck(
            f"{parameters.batches} micro-batches were committed under it", under, f"{max(0, run.progress.batches() - begin)}"
        )

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        checks = []
        for proxy in present(testbed, target):
            testbed.proxies.remove(proxy, target["toxics"])
            left = [toxic for toxic in testbed.proxies.toxics(proxy) if toxic in target["toxics"]]
            with links(testbed)[proxy].echo() as echo:
                took_s = probes.seconds(echo, 1)[0]
            detail = f"{proxy}: {', '.join(left) or 'none'}; a probe takes {took_s * 1000:.1f} ms"
            checks.append(EvidenceCheck("no toxic of it is left on the proxy", not left, detail))
        return checks
