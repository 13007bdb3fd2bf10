"""``throttle_container``: what a server sends is held to so many bytes a second.

The model: a node whose network others use up, a quota of a cloud. All connections share the rate, unlike with ``bandwidth``, which gives
each connection its own.

Evidence: the kernel's token bucket reads back with its rate, an echo of a second's bytes comes at no more than that rate and came at twice
of what it does now before, the kernel counts packets that had to wait, and the job commits under it.
Checked against: Linux 6.1 (tc-tbf(8)), Docker Engine 20.10.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from streamproof.faults.containers.shaped_container import ShapedContainer, ShapedParameters
from streamproof.faults.fault import EvidenceCheck, RunContext
from streamproof.testbed import probes

ECHO_S, OVER = 1.0, 1.25


class ThrottleParameters(ShapedParameters):
    rate_kb_per_s: int = Field(300, ge=50, le=20_000, description="What all connections of the server together carry, in 1000 bytes/s")


class ThrottleContainer(ShapedContainer):
    name = "throttle_container"
    summary = "Let the container of a server send only so many bytes a second"
    kind = "tbf"
    counter = "overlimits"
    shows = "packets had to wait"
    parameters_model = ThrottleParameters

    def settings(self, parameters: ThrottleParameters) -> dict[str, Any]:
        return {"rate": parameters.rate_kb_per_s * 1000}

    def aim(self, run: RunContext, parameters: ThrottleParameters) -> dict[str, Any]:
        return {**super().aim(run, parameters), "before": _kb_per_s(run, parameters)}

    def reads_back(self, parameters: ThrottleParameters, shaped: list[dict[str, Any]]) -> bool:
        return bool(shaped) and all(one["rate"] == parameters.rate_kb_per_s * 1000 for one in shaped)

    def felt(self, run: RunContext, parameters: ThrottleParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        before, during = target["before"], _kb_per_s(run, parameters)
        narrow = during <= parameters.rate_kb_per_s * OVER and before >= during * 2
        return [EvidenceCheck("what a probe gets dropped to the rate", narrow, f"{before:.0f} KB/s before, {during:.0f} KB/s during")]


def _kb_per_s(run: RunContext, parameters: ThrottleParameters) -> float:
    """What comes back of an echo, in 1000 bytes/s."""
    size = int(parameters.rate_kb_per_s * 1000 * ECHO_S)
    with probes.kafka_echo(run.testbed.direct_kafka.split(",")[0]) as echo:
        return size / 1000 / min(probes.seconds(echo, size, 2))
