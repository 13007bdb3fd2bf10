"""Where a delivered record says that it comes from: driver start, batch and attempt, in a header that a strategy may set.

The header is ``start.batch.attempt`` in decimal digits, at most 9, 18 and 9 of them, so that each fits its column. Another's header of the
same name says nothing.
"""

from __future__ import annotations

import re
from typing import Any

HEADER = "streamproof"
_ORIGIN = re.compile(rb"([0-9]{1,9})\.([0-9]{1,18})\.([0-9]{1,9})")


def decode(headers: Any) -> tuple[int | None, int | None, int | None]:
    """Start, batch and attempt of one record, from its headers as confluent-kafka has them: pairs of a name and a value, or None."""
    for name, value in headers or ():
        if name == HEADER and value is not None:
            match = _ORIGIN.fullmatch(value)
            return (int(match[1]), int(match[2]), int(match[3])) if match else (None, None, None)
    return None, None, None
