"""``bandwidth``: the link to Kafka, or PostgreSQL, is narrow.

The model: a network that others use up, a throttled virtual machine, a link over a long way. Small requests are as quick as ever, so
heartbeats and health checks see nothing; batches take as long as their bytes do, and a fetch or a flush may run into its timeout.

A Toxiproxy ``bandwidth`` toxic on both directions. The rate is that of each connection, not of all together.

Evidence: the toxic reads back; an echo of a quarter of a second's bytes comes back at no more than that rate, and came at twice of what it
does now before; the wanted number of micro-batches were committed while it lasted, not counting one that was in flight.
Checked against: Toxiproxy 2.12 (``BandwidthToxic`` holds each chunk back for as long as its bytes take).
"""

from __future__ import annotations

from pydantic import Field

from streamproof.faults.fault import EvidenceCheck
from streamproof.faults.network.toxic import Link, Toxic, ToxicParameters
from streamproof.testbed import probes

ECHO_S = 0.25


class BandwidthParameters(ToxicParameters):
    rate_kb_per_s: int = Field(200, ge=10, le=20_000, description="What each connection lets through in each direction, in 1000 bytes/s")


class Bandwidth(Toxic):
    kind = "bandwidth"
    name = "bandwidth"
    summary = "Let each connection to Kafka, or PostgreSQL, carry only so many bytes a second"
    parameters_model = BandwidthParameters

    def attributes(self, parameters: BandwidthParameters) -> dict[str, int]:
        return {"rate": parameters.rate_kb_per_s}

    def measure(self, link: Link, parameters: BandwidthParameters) -> float:
        """The best of three echoes, in KB/s: their bytes go one way, then the other."""
        size = int(parameters.rate_kb_per_s * 1000 * ECHO_S)
        with link.echo() as echo:
            return 2 * size / 1000 / min(probes.seconds(echo, size, 3))

    def felt(self, parameters: BandwidthParameters, before: float, during: float) -> EvidenceCheck:
        narrow = during <= parameters.rate_kb_per_s * 1.1 and before >= during * 2
        return EvidenceCheck(
            "what a probe gets through the proxy dropped to the rate", narrow, f"{before:.0f} KB/s before, {during:.0f} KB/s during"
        )
