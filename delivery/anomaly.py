"""The ways in which a delivery can be wrong, one definition each."""

from __future__ import annotations

from enum import StrEnum


class Anomaly(StrEnum):
    """
    LOST: an ACKED record of which no copy was delivered.
    DUPLICATED: a record that was sent (ACKED or INDETERMINATE) and delivered more than once.
    PHANTOM: a delivered record that nobody sent, or whose send was REJECTED.
    CORRUPTED: a delivered record whose payload's checksum differs from the one sent, or whose identity cannot be read.
    """

    LOST = "LOST"
    DUPLICATED = "DUPLICATED"
    PHANTOM = "PHANTOM"
    CORRUPTED = "CORRUPTED"
