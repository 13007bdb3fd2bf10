"""``network_latency``: every answer of Kafka, or PostgreSQL, to the pipeline is delayed.

The model: a congested or far-away link between the job and its servers. Requests succeed, only later: what breaks is whatever assumed
they would be quick (a transaction's timeout, a heartbeat, a trigger interval). With ``jitter_ms`` each answer takes another time, and those
of different connections overtake each other.

A Toxiproxy ``latency`` toxic on the downstream. With a ``role`` it slows the link to Kafka of the driver or of the executors alone.

Evidence: the toxic reads back with its attributes; a probe through the proxy takes the delay (or at least nine tenths of the least that it
can be) longer than it did before, and with jitter not always the same time; the wanted number of micro-batches were committed while it
lasted, not counting one that was in flight.
Checked against: Toxiproxy 2.12 (``LatencyToxic`` draws each delay from ``latency`` plus or minus ``jitter``, from no seed).
"""

from __future__ import annotations

import random
import time
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from streamproof.faults.fault import EvidenceCheck
from streamproof.faults.network.toxic import DOWNSTREAM, Link, Toxic, ToxicParameters, links
from streamproof.jobs.profile import JobProfile
from streamproof.testbed import probes

# Of as many delays drawn from a range, all lie within a quarter of it once in 300,000 times.
SAMPLES, SAMPLES_OF_JITTER = 5, 12
QUICK = 0.05  # of the delay: what is quicker than that does not hide it
LONGEST_S = 1.0


class NetworkLatencyParameters(ToxicParameters):
    latency_ms: int = Field(60, ge=1, le=60_000, description="How much later each answer arrives, in ms")
    jitter_ms: int = Field(0, ge=0, le=60_000, description="By how much the delay of each answer may differ from that, in ms")

    @field_validator("jitter_ms")
    @classmethod
    def _no_delay_below_0(cls, jitter_ms: int, info: ValidationInfo) -> int:
        latency_ms = info.data.get("latency_ms", jitter_ms)  # not there when it was refused itself
        if jitter_ms > latency_ms:
            raise ValueError(f"expected at most latency_ms, {latency_ms}, came {jitter_ms}")
        return jitter_ms


class NetworkLatency(Toxic):
    kind = "latency"
    streams = DOWNSTREAM
    name = "network_latency"
    summary = "Delay every answer of Kafka, or PostgreSQL, to the pipeline"
    parameters_model = NetworkLatencyParameters

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        return {"latency_ms": rng.randrange(20, 121, 10), "batches": rng.randint(2, 3)}

    def attributes(self, parameters: NetworkLatencyParameters) -> dict[str, int]:
        return {"latency": parameters.latency_ms, "jitter": parameters.jitter_ms}

    def measure(self, link: Link, parameters: NetworkLatencyParameters) -> float:
        """The quickest of some round trips, in ms: what a busy machine adds to the others is not the network's. As long as none was quick
        there are more of them, for ``LONGEST_S`` at most."""
        until, quickest = time.monotonic() + LONGEST_S, _round_trips_ms(link, SAMPLES)[0]
        while quickest > parameters.latency_ms * QUICK and time.monotonic() < until:
            quickest = min(quickest, _round_trips_ms(link, SAMPLES)[0])
        return quickest

    def felt(self, parameters: NetworkLatencyParameters, before: float, during: float) -> EvidenceCheck:
        least = parameters.latency_ms - parameters.jitter_ms
        return EvidenceCheck(
            "a probe is slower by the delay",
            during - before >= least * 0.9,
            f"{before:.1f} ms before, {during:.1f} ms during",
        )

    def evidence(self, run: Any, parameters: NetworkLatencyParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        if not parameters.jitter_ms:
            return super().evidence(run, parameters, target)
        checks = super().evidence(run, parameters, target)
        for proxy in target["proxies"]:
            times = _round_trips_ms(links(run.testbed)[proxy], SAMPLES_OF_JITTER)
            differ = times[-1] - times[0] >= parameters.jitter_ms / 2
            checks.append(EvidenceCheck("probes differ by half the jitter", differ, f"{proxy}: {times[0]:.1f} ms to {times[-1]:.1f} ms"))
        return checks


def _round_trips_ms(link: Link, samples: int) -> list[float]:
    with link.echo() as echo:
        return sorted(seconds * 1000 for seconds in probes.seconds(echo, 1, samples))
