"""``slicer``: data to and from Kafka, or PostgreSQL, arrives in small pieces.

The model: a link with a small packet size, or a proxy that forwards whatever it has. TCP promises bytes, not messages: a client that takes
one read for one answer fails here; others are slowed down by the many pieces.

A Toxiproxy ``slicer`` toxic on both directions, with a pause after each piece, without which the pieces may be joined again on the way.

Evidence: the toxic reads back; a long echo takes at least the pauses between its pieces longer than it did before; the wanted number of
micro-batches were committed while it lasted, not counting one that was in flight.
Checked against: Toxiproxy 2.12 (``SlicerToxic`` halves a chunk until its parts are no longer than the average plus the variation).
"""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator

from streamproof.faults.fault import EvidenceCheck
from streamproof.faults.network.toxic import Link, Toxic, ToxicParameters
from streamproof.testbed import probes

PIECES = 100


class SlicerParameters(ToxicParameters):
    average_bytes: int = Field(512, ge=16, le=16_384, description="How long a piece is on average, in bytes")
    variation_bytes: int = Field(
        256, ge=0, le=16_383, validate_default=True, description="By how much a piece may be longer or shorter, in bytes"
    )
    pause_us: int = Field(500, ge=100, le=100_000, description="The pause after each piece, in µs")

    @field_validator("variation_bytes")
    @classmethod
    def _pieces_have_a_length(cls, variation_bytes: int, info: ValidationInfo) -> int:
        average_bytes = info.data.get("average_bytes")  # not there when it was refused itself
        if average_bytes is not None and variation_bytes >= average_bytes:
            raise ValueError(f"expected less than average_bytes, {average_bytes}, came {variation_bytes}")
        return variation_bytes

    @property
    def longest_bytes(self) -> int:
        return self.average_bytes + self.variation_bytes


class Slicer(Toxic):
    kind = "slicer"
    name = "slicer"
    summary = "Cut what goes to and comes from Kafka, or PostgreSQL, into small pieces"
    parameters_model = SlicerParameters

    def attributes(self, parameters: SlicerParameters) -> dict[str, int]:
        return {"average_size": parameters.average_bytes, "size_variation": parameters.variation_bytes, "delay": parameters.pause_us}

    def measure(self, link: Link, parameters: SlicerParameters) -> float:
        """The quickest of three echoes of at least ``PIECES`` pieces, in ms."""
        with link.echo() as echo:
            return min(probes.seconds(echo, PIECES * parameters.longest_bytes, 3)) * 1000

    def felt(self, parameters: SlicerParameters, before: float, during: float) -> EvidenceCheck:
        pauses_ms = 2 * PIECES * parameters.pause_us / 1000
        return EvidenceCheck(
            f"a probe of {PIECES} pieces each way is slower by their pauses",
            during - before >= pauses_ms * 0.9,
            f"{before:.1f} ms before, {during:.1f} ms during, the pauses are {pauses_ms:.0f} ms",
        )
