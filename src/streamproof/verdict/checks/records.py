"""The delivery checker: it compares the sent and the delivered history and names every anomalous record.

Each record is named by (producer, sequence). Let ``copies`` be how often it was delivered. With the record's outcome:

    ACKED           copies 0: LOST       1: right     more: DUPLICATED
    INDETERMINATE   copies 0: right      1: right     more: DUPLICATED
    REJECTED        copies 0: right      1 or more: PHANTOM (the producer was told that the record does not exist)
    never sent                           1 or more: PHANTOM

Where an experiment says that a record is due N times, not once (``streamproof.evidence.expected``): of a record that is due more often,
fewer copies are LOST and more DUPLICATED; an INDETERMINATE one has none or all. A copy of a record that is due 0 times is a PHANTOM.

A delivered copy is CORRUPTED when its checksum differs from that of the sent record, or from the one that the copy itself carries; it still
counts as a copy. A delivered record without a readable identity is CORRUPTED and counts as no record's copy. Gaps between offsets of the
output are never evidence, because a transactional topic has them.

A pure function of the two histories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from streamproof.evidence.expected import ONCE, Expected
from streamproof.evidence.histories import Delivered, Sent
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.matching import Finding, Matching, match

KINDS = (Anomaly.LOST, Anomaly.DUPLICATED, Anomaly.PHANTOM, Anomaly.CORRUPTED)


def count(findings: Iterable[Finding], kinds: Iterable[Anomaly]) -> dict[Anomaly, int]:
    """How many of ``findings`` show each of these anomalies."""
    counted = Counter(finding.anomaly for finding in findings)
    return {anomaly: counted[anomaly] for anomaly in kinds}


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
        return count(self.findings, KINDS)


def check(sent: Sent, delivered: Delivered, expected: Expected = ONCE) -> Reconciliation:
    """Compare the histories. Raises EvidenceError naming an identity that was sent twice: the workload must not do that."""
    return reconcile(match(sent, delivered), expected)


def reconcile(matched: Matching, expected: Expected) -> Reconciliation:
    """Compare histories that were matched."""
    sent, delivered, rows, send, was_sent = matched.sent, matched.delivered, matched.rows, matched.send, matched.was_sent
    copies, due = np.bincount(send[was_sent], minlength=len(sent)), expected.of_sequences(sent.sequence)
    lost = (sent.acked | (~sent.rejected & (copies > 0))) & (copies < due)
    duplicated = ~sent.rejected & (due > 0) & (copies > due)
    undead = (sent.rejected | (due == 0)) & (copies > 0)
    wrong = np.zeros(len(rows), bool)
    crc = sent.crc[send[was_sent]]
    wrong[was_sent] = (delivered.crc[rows[was_sent]] < 0) | ((crc >= 0) & (crc != delivered.crc[rows[was_sent]]))

    findings: list[Finding] = []
    copies_of = _Copies(send, rows)
    for anomaly, mask in ((Anomaly.LOST, lost), (Anomaly.DUPLICATED, duplicated), (Anomaly.PHANTOM, undead)):
        for number in np.flatnonzero(mask):
            found = matched.finding(anomaly, int(number), int(copies[number]), copies_of(int(number)))
            findings.append(replace(found, due=int(due[number])))
    damaged_of = _Copies(np.where(wrong, send, -1), rows)
    for number in np.unique(send[wrong]):
        findings.append(matched.finding(Anomaly.CORRUPTED, int(number), int(copies[number]), damaged_of(int(number))))
    strangers: dict[tuple[int, int], list[int]] = {}
    for row in rows[~was_sent]:
        strangers.setdefault((int(delivered.producer[row]), int(delivered.sequence[row])), []).append(int(row))
    for (producer, sequence), at in strangers.items():
        findings.append(Finding(Anomaly.PHANTOM, producer, sequence, len(at), None, tuple(at)))
    for row in np.flatnonzero(~delivered.identified):
        findings.append(Finding(Anomaly.CORRUPTED, None, None, 1, None, (int(row),)))
    return Reconciliation(
        tuple(findings),
        _by_partition(sent, copies, lost, duplicated),
        int(sent.acked.sum()),
        int((~sent.acked & ~sent.rejected).sum()),
        int(sent.rejected.sum()),
        len(delivered),
    )


def sent_only(sent: Sent, delivered: int) -> Reconciliation:
    """The account of a job whose output has no records: what was sent, and how much was delivered."""
    no = np.zeros(len(sent), bool)
    acked, rejected = int(sent.acked.sum()), int(sent.rejected.sum())
    return Reconciliation((), _by_partition(sent, no.astype(np.int64), no, no), acked, len(sent) - acked - rejected, rejected, delivered)


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
