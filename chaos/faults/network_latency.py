"""``network_latency``: every answer of Kafka to the pipeline is delayed.

The model: a congested or far-away link between the job and its brokers. Requests succeed, only later: what breaks is whatever assumed
they would be quick (a transaction's timeout, a heartbeat, a trigger interval).

A Toxiproxy ``latency`` toxic on the downstream of the proxies between pipeline and Kafka, toxicity 1.0 and jitter 0: Toxiproxy draws
neither from a seed, so any randomness belongs to the schedule. With a ``role`` it strikes the way of the driver or of the executors alone;
each has a proxy of its own.

Evidence: the toxic reads back with its attributes; a probe through the proxy takes the delay (or at least nine tenths of it) longer
than it did before; the wanted number of micro-batches were committed while it lasted, not counting one that was in flight. With a ``role``,
too: the connections through the proxy are those of the role's processes only, and a probe through the other's proxy is not slower.
"""

from __future__ import annotations

import random
from typing import Any

from pydantic import Field

from chaos.faults import kafka_link
from chaos.faults.fault import Claim, Scene, Unconditional
from chaos.faults.kafka_link import OfRole
from delivery.folder import RunFolder
from testbed.embedded import Role, Testbed
from testbed.toxiproxy import kafka_round_trip_ms

TOXIC = "streamproof-latency"
BATCH_S = 90.0


class NetworkLatencyParameters(OfRole):
    latency_ms: int = Field(60, ge=1, le=60_000, description="How much later each answer arrives, in ms")
    batches: int = Field(2, ge=1, le=100, description="How many micro-batches are committed before it is healed")


class NetworkLatency(Unconditional):
    name = "network_latency"
    summary = "Delay every answer of Kafka to the pipeline"
    target = "the link between the pipeline and Kafka"
    parameters_model = NetworkLatencyParameters
    occupies = frozenset({"the link to kafka"})
    background = True

    def draw(self, rng: random.Random, strategy: str) -> dict[str, Any] | None:
        return {"latency_ms": rng.randrange(20, 121, 10), "batches": rng.randint(2, 3)}

    def batches(self, parameters: NetworkLatencyParameters) -> int:
        return parameters.batches + 2

    def outside(self, parameters: NetworkLatencyParameters) -> frozenset[Role]:
        return kafka_link.ways(parameters.role)

    def aim(self, scene: Scene, parameters: NetworkLatencyParameters) -> dict[str, Any]:
        links = scene.testbed.kafka_links()
        return {
            "role": self.target,
            "proxies": scene.testbed.kafka_proxies(parameters.role),
            "toxic": TOXIC,
            "links": links,
            "connections": kafka_link.connections(scene, parameters.role),
            "round_trip_before_ms": {name: _round_trip_ms(address) for name, address in links.items()},
        }

    def inject(self, scene: Scene, parameters: NetworkLatencyParameters, target: dict[str, Any]) -> None:
        attributes = {"latency": parameters.latency_ms, "jitter": 0}
        for name in target["proxies"]:
            scene.testbed.proxies.add(name, TOXIC, "latency", "downstream", attributes)

    def evidence(self, scene: Scene, parameters: NetworkLatencyParameters, target: dict[str, Any]) -> list[Claim]:
        injected_batches = scene.progress.batches() + 1  # the batch in flight began without the delay
        claims = kafka_link.claims(target["connections"])
        for name, before in target["round_trip_before_ms"].items():
            during = _round_trip_ms(target["links"][name])
            slower, detail = during - before >= parameters.latency_ms * 0.9, f"{before:.1f} ms before, {during:.1f} ms during"
            if name not in target["proxies"]:
                claims.append(Claim(f"a probe through {name} is not slower", not slower, detail))
                continue
            found = scene.testbed.proxies.toxics(name).get(TOXIC)
            claims += [
                Claim(f"the toxic on {name} reads back", found is not None and found["latency"] == parameters.latency_ms, f"{found}"),
                Claim(f"a probe through {name} is slower by the delay", slower, detail),
            ]
        under = scene.eventually(lambda: scene.progress.batches() >= injected_batches + parameters.batches, BATCH_S)
        committed = max(0, scene.progress.batches() - injected_batches)
        return [*claims, Claim(f"{parameters.batches} micro-batches were committed under it", under, f"{committed}")]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[Claim]:
        there = [name for name in target["proxies"] if name in testbed.links]
        for name in there:
            testbed.proxies.reset(name)
        left = {name: sorted(testbed.proxies.toxics(name)) for name in there}
        after = max((_round_trip_ms(testbed.links[name]) for name in there), default=0.0)
        return [Claim("no toxic is left on the proxy", not any(left.values()), f"{left}, a probe takes {after:.1f} ms")]


def _round_trip_ms(address: str) -> float:
    return round(kafka_round_trip_ms(address), 3)
