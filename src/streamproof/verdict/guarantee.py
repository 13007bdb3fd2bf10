"""A delivery guarantee is the set of anomalies that it forbids. A strategy's further promises forbid more."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from streamproof.verdict.anomaly import RESULT_KINDS, Anomaly

_ALWAYS = frozenset({Anomaly.PHANTOM, Anomaly.CORRUPTED})


class Guarantee(StrEnum):
    """At-most-once forbids DUPLICATED, at-least-once forbids LOST, exactly-once both. Each forbids PHANTOM and CORRUPTED.

    A job that must not lose records must not commit an offset before the output: at-least-once and exactly-once forbid OFFSET_AHEAD.

    A stateful job has results instead of records: each guarantee forbids UNEXPECTED, WRONG_VALUE and DROPPED, at-most-once forbids
    REPEATED, at-least-once MISSING, exactly-once both.
    """

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"

    @property
    def forbidden(self) -> frozenset[Anomaly]:
        return _ALWAYS | _FORBIDDEN[self]

    @property
    def forbidden_results(self) -> frozenset[Anomaly]:
        """The anomalies that it forbids in the results of a stateful job."""
        return _ALWAYS_OF_RESULTS | _FORBIDDEN_OF_RESULTS[self]


class Promise(StrEnum):
    """What a strategy may promise in addition to its guarantee. A strategy is judged by its own promises only.

    ORDERED: the records of a key leave in the order in which they were read; forbids REORDERED.
    ATOMIC: a micro-batch becomes visible as a whole; forbids TORN.
    MONOTONIC: of an output that keeps versions: what one version shows, each later one does (monotonic reads); forbids VANISHED.
    """

    ORDERED = "ordered"
    ATOMIC = "atomic"
    MONOTONIC = "monotonic"

    @property
    def forbidden(self) -> Anomaly:
        return _BROKEN_BY[self]


def forbidden(guarantee: Guarantee, promises: Iterable[Promise], stateful: bool = False) -> frozenset[Anomaly]:
    """The anomalies that ``guarantee`` and ``promises`` forbid. Promises are about records; a stateful job has none."""
    if stateful:
        return guarantee.forbidden_results
    return guarantee.forbidden | {promise.forbidden for promise in promises}


def allowed(guarantee: Guarantee, promises: Iterable[Promise]) -> frozenset[Anomaly]:
    """The anomalies of records that ``guarantee`` and ``promises`` do not forbid. VANISHED is none of them: an output that does not promise
    its versions has none in which it could be seen."""
    return frozenset(Anomaly) - frozenset(RESULT_KINDS) - {Anomaly.VANISHED} - forbidden(guarantee, promises)


_FORBIDDEN: dict[Guarantee, frozenset[Anomaly]] = {
    Guarantee.AT_MOST_ONCE: frozenset({Anomaly.DUPLICATED}),
    Guarantee.AT_LEAST_ONCE: frozenset({Anomaly.LOST, Anomaly.OFFSET_AHEAD}),
    Guarantee.EXACTLY_ONCE: frozenset({Anomaly.LOST, Anomaly.DUPLICATED, Anomaly.OFFSET_AHEAD}),
}
_ALWAYS_OF_RESULTS = frozenset({Anomaly.UNEXPECTED, Anomaly.WRONG_VALUE, Anomaly.DROPPED})
_FORBIDDEN_OF_RESULTS: dict[Guarantee, frozenset[Anomaly]] = {
    Guarantee.AT_MOST_ONCE: frozenset({Anomaly.REPEATED}),
    Guarantee.AT_LEAST_ONCE: frozenset({Anomaly.MISSING}),
    Guarantee.EXACTLY_ONCE: frozenset({Anomaly.MISSING, Anomaly.REPEATED}),
}
_BROKEN_BY = {Promise.ORDERED: Anomaly.REORDERED, Promise.ATOMIC: Anomaly.TORN, Promise.MONOTONIC: Anomaly.VANISHED}
