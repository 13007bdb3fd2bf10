"""The ways in which a delivery can be wrong, one definition each."""

from __future__ import annotations

from enum import StrEnum


class Anomaly(StrEnum):
    """
    LOST: an ACKED record without a delivered copy.
    DUPLICATED: a record that was sent (ACKED or INDETERMINATE) and delivered more than once.
    PHANTOM: a delivered record that was never sent, or whose send was REJECTED.
    CORRUPTED: a delivered record whose payload's checksum differs from the one sent, or whose identity cannot be read.
    REORDERED: a record whose first copy lies behind a record with the same key that was read after it, or whose copies are all outside of
        its key's dominant partition in the output.
    TORN: a micro-batch whose records one start of the job made visible only in part.
    OFFSET_AHEAD: an ACKED record that was delivered, but only after the job had committed an offset above the record's own.
    VANISHED: a record that was sent (ACKED or INDETERMINATE), which a version of the output showed and a later version did not, whether or
        not one after that does again.
    MISSING: a result of a stateful job (a window, a joined pair) that the recomputation requires, without a delivered copy.
    UNEXPECTED: a delivered result that the recomputation does not give.
    WRONG_VALUE: a delivered result whose value differs from the recomputation.
    REPEATED: a result that was delivered more than once.
    DROPPED: a micro-batch in which a job dropped more late rows, or fewer, than its declared delay requires.
    """

    LOST = "LOST"
    DUPLICATED = "DUPLICATED"
    PHANTOM = "PHANTOM"
    CORRUPTED = "CORRUPTED"
    REORDERED = "REORDERED"
    TORN = "TORN"
    OFFSET_AHEAD = "OFFSET_AHEAD"
    VANISHED = "VANISHED"
    MISSING = "MISSING"
    UNEXPECTED = "UNEXPECTED"
    WRONG_VALUE = "WRONG_VALUE"
    REPEATED = "REPEATED"
    DROPPED = "DROPPED"


RESULT_KINDS = (Anomaly.MISSING, Anomaly.UNEXPECTED, Anomaly.WRONG_VALUE, Anomaly.REPEATED, Anomaly.DROPPED)
"""The anomalies of results. The others are about records. No anomaly is about both: agreement and blame name a result by what it is about,
and a record by its identity."""
