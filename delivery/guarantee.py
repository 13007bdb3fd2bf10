"""A delivery guarantee is the set of anomalies that it forbids."""

from __future__ import annotations

from enum import StrEnum

from delivery.anomaly import Anomaly

_ALWAYS = frozenset({Anomaly.PHANTOM, Anomaly.CORRUPTED})


class Guarantee(StrEnum):
    """At-most-once forbids DUPLICATED, at-least-once forbids LOST, exactly-once both. Each forbids PHANTOM and CORRUPTED."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"

    @property
    def forbidden(self) -> frozenset[Anomaly]:
        return _ALWAYS | _FORBIDDEN[self]


_FORBIDDEN: dict[Guarantee, frozenset[Anomaly]] = {
    Guarantee.AT_MOST_ONCE: frozenset({Anomaly.DUPLICATED}),
    Guarantee.AT_LEAST_ONCE: frozenset({Anomaly.LOST}),
    Guarantee.EXACTLY_ONCE: frozenset({Anomaly.LOST, Anomaly.DUPLICATED}),
}
