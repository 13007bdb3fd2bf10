"""The ways in which a delivery can be wrong, one definition each."""

from __future__ import annotations

from enum import StrEnum


class Anomaly(StrEnum):
    """
    LOST: an ACKED record of which no copy was delivered.
    DUPLICATED: a record that was sent (ACKED or INDETERMINATE) and delivered more than once.
    PHANTOM: a delivered record that nobody sent, or whose send was REJECTED.
    CORRUPTED: a delivered record whose payload's checksum differs from the one sent, or whose identity cannot be read.
    REORDERED: a record whose first copy came behind one with the same key that was read after it, or of which copies are only in another
        partition of the output than those of its key.
    TORN: a micro-batch of which one start of the job made some records visible, and others that it had read not.
    OFFSET_AHEAD: an ACKED record that was delivered, but only after the job had committed an offset above the record's own.
    MISSING: a result of a stateful job (of a window, of a join) that must be there by recomputation, of which no copy was delivered.
    UNEXPECTED: a delivered result that the recomputation does not have.
    WRONG_VALUE: a delivered result that says something else than the recomputation.
    REPEATED: a result of which more than one copy was delivered.
    DROPPED: a micro-batch in which a job dropped more late rows, or fewer, than its declared delay has it drop.
    """

    LOST = "LOST"
    DUPLICATED = "DUPLICATED"
    PHANTOM = "PHANTOM"
    CORRUPTED = "CORRUPTED"
    REORDERED = "REORDERED"
    TORN = "TORN"
    OFFSET_AHEAD = "OFFSET_AHEAD"
    MISSING = "MISSING"
    UNEXPECTED = "UNEXPECTED"
    WRONG_VALUE = "WRONG_VALUE"
    REPEATED = "REPEATED"
    DROPPED = "DROPPED"


RESULT_KINDS = (Anomaly.MISSING, Anomaly.UNEXPECTED, Anomaly.WRONG_VALUE, Anomaly.REPEATED, Anomaly.DROPPED)
"""Those of results. The others are about records."""
