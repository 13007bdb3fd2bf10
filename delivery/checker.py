"""The delivery checker: from what was sent and what was delivered to every anomalous record.

Each record is named by (producer, sequence). Let ``copies`` be how often it was delivered. With the record's outcome:

    ACKED           copies 0: LOST       1: right     more: DUPLICATED
    INDETERMINATE   copies 0: right      1: right     more: DUPLICATED
    REJECTED        copies 0: right      1 or more: PHANTOM (somebody was told that it is not there)
    never sent                           1 or more: PHANTOM

A delivered copy whose checksum is not that of the record that was sent, or not the one that it carries itself, is CORRUPTED; it still
counts as a copy. A delivered record
without a readable identity is CORRUPTED and counts as nobody's copy. Offsets of the output are never evidence: a transactional topic
has gaps.

A pure function of its two arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from delivery.anomaly import Anomaly
from delivery.folder import EvidenceError
from delivery.history import Delivered, Sent

_SHIFT = 48  # a sequence has 48 bits


@dataclass(frozen=True)
class Finding:
    """One anomalous record. ``sent`` and ``delivered`` are row numbers in the histories: the send (None: nobody sent it), its copies."""

    anomaly: Anomaly
    producer: int | None
    sequence: int | None
    copies: int
    sent: int | None
    delivered: tuple[int, ...]


@dataclass(frozen=True)
class PartitionCount:
    """One source partition's account. ``delivered`` counts copies of its records."""

    partition: int
    acked: int
    indeterminate: int
    rejected: int
    delivered: int
    lost: int
    duplicated: int


@dataclass(frozen=True)
class Reconciliation:
    """What the checker found: every anomalous record, and an account per source partition (-1: records whose partition is unknown)."""

    findings: tuple[Finding, ...]
    partitions: tuple[PartitionCount, ...]
    acked: int
    indeterminate: int
    rejected: int
    delivered: int

    def counts(self) -> dict[Anomaly, int]:
        """How many records show each anomaly."""
        counted = dict.fromkeys(Anomaly, 0)
        for finding in self.findings:
            counted[finding.anomaly] += 1
        return counted


def check(sent: Sent, delivered: Delivered) -> Reconciliation:
    """Compare the histories. Raises EvidenceError naming an identity that was sent twice: the workload must not do that."""
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
    known = np.zeros(len(rows), bool)
    inside = position < len(ordered)
    known[inside] = ordered[position[inside]] == key[inside]
    send = np.full(len(rows), -1, np.int64)
    send[known] = order[position[known]]

    copies = np.bincount(send[known], minlength=len(sent))
    lost = sent.acked & (copies == 0)
    duplicated = ~sent.rejected & (copies > 1)
    undead = sent.rejected & (copies > 0)
    wrong = np.zeros(len(rows), bool)
    expected = sent.crc[send[known]]
    wrong[known] = (delivered.crc[rows[known]] < 0) | ((expected >= 0) & (expected != delivered.crc[rows[known]]))

    found: list[Finding] = []
    copies_of = _Copies(send, rows)
    for anomaly, mask in ((Anomaly.LOST, lost), (Anomaly.DUPLICATED, duplicated), (Anomaly.PHANTOM, undead)):
        for number in np.flatnonzero(mask):
            found.append(_finding(anomaly, sent, int(number), int(copies[number]), copies_of(int(number))))
    damaged_of = _Copies(np.where(wrong, send, -1), rows)
    for number in np.unique(send[wrong]):
        found.append(_finding(Anomaly.CORRUPTED, sent, int(number), int(copies[number]), damaged_of(int(number))))
    strangers: dict[tuple[int, int], list[int]] = {}
    for row in rows[~known]:
        strangers.setdefault((int(delivered.producer[row]), int(delivered.sequence[row])), []).append(int(row))
    for (producer, sequence), at in strangers.items():
        found.append(Finding(Anomaly.PHANTOM, producer, sequence, len(at), None, tuple(at)))
    for row in np.flatnonzero(~delivered.identified):
        found.append(Finding(Anomaly.CORRUPTED, None, None, 1, None, (int(row),)))
    return Reconciliation(
        tuple(found),
        _by_partition(sent, copies, lost, duplicated),
        int(sent.acked.sum()),
        int((~sent.acked & ~sent.rejected).sum()),
        int(sent.rejected.sum()),
        len(delivered),
    )


class _Copies:
    """The delivered rows of a send, found by binary search; sorted only when somebody asks."""

    def __init__(self, send: np.ndarray, rows: np.ndarray) -> None:
        self._send, self._rows = send, rows
        self._sorted: tuple[np.ndarray, np.ndarray] | None = None

    def __call__(self, number: int) -> tuple[int, ...]:
        if self._sorted is None:
            order = np.argsort(self._send, kind="stable")
            self._sorted = self._send[order], self._rows[order]
        send, rows = self._sorted
        low, high = np.searchsorted(send, [number, number + 1])
        return tuple(int(row) for row in rows[low:high])


def _finding(anomaly: Anomaly, sent: Sent, number: int, copies: int, delivered: tuple[int, ...]) -> Finding:
    return Finding(anomaly, int(sent.producer[number]), int(sent.sequence[number]), copies, number, delivered)


def _by_partition(sent: Sent, copies: np.ndarray, lost: np.ndarray, duplicated: np.ndarray) -> tuple[PartitionCount, ...]:
    counted = []
    for partition in np.unique(sent.partition):
        here = sent.partition == partition
        acked, rejected = sent.acked[here], sent.rejected[here]
        counted.append(
            PartitionCount(
                int(partition),
                int(acked.sum()),
                int((~acked & ~rejected).sum()),
                int(rejected.sum()),
                int(copies[here].sum()),
                int(lost[here].sum()),
                int(duplicated[here].sum()),
            )
        )
    return tuple(counted)
