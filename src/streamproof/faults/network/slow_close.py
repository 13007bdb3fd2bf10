"""``slow_close``: a connection to Kafka, or PostgreSQL, is closed later than its ends think.

The model: a load balancer or firewall that keeps half-closed connections for a while. Whoever has closed is gone, the other side still
waits: a server holds the locks and the open transaction of a client that has died, a client waits for the answer of a server that has.

A Toxiproxy ``slow_close`` toxic on both directions; data passes as ever.

Evidence: the toxic reads back; a probe that has said its last word is hung up on at least that much later than before; the wanted number of
micro-batches were committed while it lasted, not counting one that was in flight.
Checked against: Toxiproxy 2.12 (``SlowCloseToxic`` passes the end of a stream on after its delay).
"""

from __future__ import annotations

from pydantic import Field

from streamproof.faults.fault import EvidenceCheck
from streamproof.faults.network.toxic import Link, Toxic, ToxicParameters
from streamproof.testbed import probes


class SlowCloseParameters(ToxicParameters):
    delay_ms: int = Field(1000, ge=50, le=10_000, description="How much later the end of a connection is passed on, in ms")


class SlowClose(Toxic):
    kind = "slow_close"
    name = "slow_close"
    summary = "Keep connections to Kafka, or PostgreSQL, open for a while after one side has closed them"
    parameters_model = SlowCloseParameters

    def attributes(self, parameters: SlowCloseParameters) -> dict[str, int]:
        return {"delay": parameters.delay_ms}

    def measure(self, link: Link, parameters: SlowCloseParameters) -> float:
        return probes.closing_s(link.address) * 1000

    def felt(self, parameters: SlowCloseParameters, before: float, during: float) -> EvidenceCheck:
        later = during - before >= parameters.delay_ms * 0.9
        return EvidenceCheck("a probe is hung up on later by the delay", later, f"{before:.1f} ms before, {during:.1f} ms during")
