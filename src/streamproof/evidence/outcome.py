"""What became of a send, as far as its producer can know."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """ACKED: the broker confirmed the write. REJECTED: the broker refused it, it is certainly not there.
    INDETERMINATE: unknown (a timeout, a dead producer); the record may appear once or not at all."""

    ACKED = "ACKED"
    REJECTED = "REJECTED"
    INDETERMINATE = "INDETERMINATE"
