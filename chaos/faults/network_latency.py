"""``network_latency``: every answer of Kafka to the pipeline is delayed.

The model: a congested or far-away link between the job and its brokers. Requests succeed, only later: what breaks is whatever assumed
they would be quick (a transaction's timeout, a heartbeat, a trigger interval).

A Toxiproxy ``latency`` toxic on the downstream of the proxy between pipeline and Kafka, toxicity 1.0 and jitter 0: Toxiproxy draws
neither from a seed, so any randomness belongs to the schedule.

Evidence: the toxic reads back with its attributes; a probe through the proxy takes the delay (or at least nine tenths of it) longer
than it did before; the wanted number of micro-batches were committed while it lasted, not counting one that was in flight.
"""

from __future__ import annotations

import random
from typing import Any

from pydantic import Field

from chaos.faults.fault import Claim, Parameters, Scene, Unconditional
from delivery.folder import RunFolder
from testbed.embedded import KAFKA_PROXY, Testbed
from testbed.toxiproxy import kafka_round_trip_ms

TOXIC = "streamproof-latency"
BATCH_S = 90.0


class NetworkLatencyParameters(Parameters):
    latency_ms: int = Field(60, ge=1, le=60_000, description="How much later each answer arrives, in ms")
    batches: int = Field(2, ge=1, le=100, description="How many micro-batches are committed before it is healed")


class NetworkLatency(Unconditional):
    name = "network_latency"
    summary = "Delay every answer of Kafka to the pipeline"
    target = "the link between the pipeline and Kafka"
    parameters_model = NetworkLatencyParameters
    occupies = frozenset({f"the link to {KAFKA_PROXY}"})
    background = True

    def draw(self, rng: random.Random, strategy: str) -> dict[str, Any] | None:
        return {"latency_ms": rng.randrange(20, 121, 10), "batches": rng.randint(2, 3)}

    def batches(self, parameters: NetworkLatencyParameters) -> int:
        return parameters.batches + 2

    def aim(self, scene: Scene, parameters: NetworkLatencyParameters) -> dict[str, Any]:
        before = kafka_round_trip_ms(scene.testbed.pipeline_kafka)
        return {"role": self.target, "proxy": KAFKA_PROXY, "toxic": TOXIC, "round_trip_before_ms": round(before, 3)}

    def inject(self, scene: Scene, parameters: NetworkLatencyParameters, target: dict[str, Any]) -> None:
        attributes = {"latency": parameters.latency_ms, "jitter": 0}
        scene.testbed.proxies.add(KAFKA_PROXY, TOXIC, "latency", "downstream", attributes)

    def evidence(self, scene: Scene, parameters: NetworkLatencyParameters, target: dict[str, Any]) -> list[Claim]:
        injected_batches = scene.progress.batches() + 1  # the batch in flight began without the delay
        found = scene.testbed.proxies.toxics(KAFKA_PROXY).get(TOXIC)
        during, before = kafka_round_trip_ms(scene.testbed.pipeline_kafka), target["round_trip_before_ms"]
        slower = during - before >= parameters.latency_ms * 0.9
        under = scene.eventually(lambda: scene.progress.batches() >= injected_batches + parameters.batches, BATCH_S)
        return [
            Claim("the toxic reads back", found is not None and found["latency"] == parameters.latency_ms, f"{found}"),
            Claim("a probe through the proxy is slower by the delay", slower, f"{before:.1f} ms before, {during:.1f} ms during"),
            Claim(
                f"{parameters.batches} micro-batches were committed under it",
                under,
                f"{max(0, scene.progress.batches() - injected_batches)}",
            ),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[Claim]:
        testbed.proxies.reset(KAFKA_PROXY)
        after = kafka_round_trip_ms(testbed.pipeline_kafka)
        left = testbed.proxies.toxics(KAFKA_PROXY)
        return [Claim("no toxic is left on the proxy", not left, f"{left or 'none'}, a probe takes {after:.1f} ms")]
