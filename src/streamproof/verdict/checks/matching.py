"""Match each delivered copy to its send. Every checker starts from this."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamproof.evidence.folder import EvidenceError
from streamproof.evidence.histories import Delivered, Sent
from streamproof.verdict.anomaly import Anomaly

_SHIFT = 48  # a sequence has 48 bits


@dataclass(frozen=True)
class Finding:
    """One anomalous record. ``sent`` and ``delivered`` are row numbers in the histories: the send (None: nobody sent it), its copies.
    ``due`` is how many copies there should be.

    A TORN micro-batch is named by ``start`` and ``batch`` instead of an identity; ``sent`` is the first of its records that is missing.
    A ``result`` of a stateful job is named by what it is ``about``, in words and in numbers; ``detail`` says what is wrong with it.
    """

    anomaly: Anomaly
    producer: int | None
    sequence: int | None
    copies: int
    sent: int | None
    delivered: tuple[int, ...]
    start: int | None = None
    batch: int | None = None
    result: str | None = None
    detail: str = ""
    about: tuple[int, ...] = ()
    due: int = 1


@dataclass(frozen=True)
class Matching:
    """The histories, and for each delivered row with an identity (``rows``, in their order) the row in ``sent``; -1: nobody sent it."""

    sent: Sent
    delivered: Delivered
    rows: np.ndarray
    send: np.ndarray

    @property
    def was_sent(self) -> np.ndarray:
        return np.asarray(self.send >= 0)

    def finding(self, anomaly: Anomaly, number: int, copies: int, delivered: tuple[int, ...]) -> Finding:
        """A finding about the record in row ``number`` of what was sent."""
        return Finding(anomaly, int(self.sent.producer[number]), int(self.sent.sequence[number]), copies, number, delivered)


def match(sent: Sent, delivered: Delivered) -> Matching:
    """Match the histories. Raises EvidenceError naming an identity that was sent twice: the workload must not do that."""
    sent_key = sent.producer << _SHIFT | sent.sequence
    order = np.argsort(sent_key, kind="stable")
    ordered = sent_key[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(again):
        first = order[again[0]]
        record = f"{sent.producer[first]}/{sent.sequence[first]}"
        raise EvidenceError(f"the workload sent one identity twice (record {record}, and {len(again) - 1} more): sent/ is damaged")
    rows = np.flatnonzero(delivered.identified)
    key = delivered.producer[rows] << _SHIFT | delivered.sequence[rows]
    position = np.searchsorted(ordered, key)
    was_sent = np.zeros(len(rows), bool)
    inside = position < len(ordered)
    was_sent[inside] = ordered[position[inside]] == key[inside]
    send = np.full(len(rows), -1, np.int64)
    send[was_sent] = order[position[was_sent]]
    return Matching(sent, delivered, rows, send)
