"""Versions of the output: which records one version showed and a later one did not.

Every version of a table is a state that a reader may have seen. A file that a version takes away takes its rows with it, unless files that
it brings, or that stay, have them too: a compaction, or a MERGE that writes a file anew. With a record's rows, each shown from one version
until before another:

    VANISHED   a record that was sent (ACKED or INDETERMINATE) and is not shown by some version behind the first that showed it

It is found by its rows in the order in which they were first shown: the record is there for as long as a row begins before those until then
have ended. Whether a later version shows it again is told, and makes no difference: a reader of the one in between missed it.

Rows are compared for some of the identities at a time, so memory does not grow with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamproof.evidence import versions
from streamproof.evidence.clock import UNKNOWN
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.histories import MAX_PRODUCER
from streamproof.evidence.versions import STILL, Known, Shown
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.matching import Finding, Matching

AT_ONCE = 1 << 22
"""How many rows are compared at a time."""
_SEQUENCE_BITS = 48
_VERSION_BITS = 32


@dataclass(frozen=True)
class Gaps:
    """The records that were not shown any more, columns of equal length: the version that showed one last, the next one, which did not,
    and the first that showed it again, -1 where none does."""

    producer: np.ndarray
    sequence: np.ndarray
    last: np.ndarray
    gone: np.ndarray
    back: np.ndarray


NOTHING = Gaps(*(np.zeros(0, np.int64) for _ in range(5)))


def gaps(folder: RunFolder, known: Known | None) -> Gaps:
    """The records that were not shown any more, by whomever they were sent; of each the first time. A version of which some file could
    not be read may have shown any record. Raises EvidenceError."""
    parts = -(-versions.count(folder) // AT_ONCE)
    whole = np.cumsum(np.r_[0, np.array(known.whole if known is not None else (), np.int64)])
    found = [_gaps(_part(folder, number, parts), whole) for number in range(parts)] or [NOTHING]
    columns = (np.concatenate([getattr(each, name) for each in found]) for name in ("producer", "sequence", "last", "gone", "back"))
    return Gaps(*columns)


def always_since(folder: RunFolder, known: Known | None, producer: np.ndarray, sequence: np.ndarray) -> np.ndarray:
    """Since when, in ms since the epoch, each version up to the newest one has shown these records; UNKNOWN of those that it does not show.
    Raises EvidenceError."""
    sought, found = _identity(producer, sequence), np.full(len(producer), UNKNOWN)
    rows = _chosen(folder, lambda shown: np.isin(_identity(shown.producer, shown.sequence), sought))
    if known is None or not len(rows.identity):
        return found
    shown = _Sorted.of(rows)
    begins = np.flatnonzero(shown.first | (shown.since > np.r_[0, shown.covered[:-1]]))  # of each stretch without a gap
    last = begins[np.r_[shown.rank[begins][1:] != shown.rank[begins][:-1], True]]  # of each record
    ends = np.flatnonzero(np.r_[shown.first[1:], True])
    place = np.minimum(np.searchsorted(shown.identity[ends], sought), len(ends) - 1)
    still = (shown.identity[ends][place] == sought) & (shown.covered[ends][place] == STILL)
    found[still] = np.array(known.at_ms, np.int64)[shown.since[last[place[still]]]]
    return found


class _Rows(NamedTuple):
    """Of each row its identity, as one number, since and until."""

    identity: np.ndarray
    since: np.ndarray
    until: np.ndarray


@dataclass(frozen=True)
class _Sorted:
    """Rows of versions by identity and since, columns of equal length. ``first`` begins each identity, and ``rank`` counts them;
    ``covered`` is until when the rows of it up to this one have shown it, without regard to gaps."""

    identity: np.ndarray
    since: np.ndarray
    first: np.ndarray
    rank: np.ndarray
    covered: np.ndarray

    @classmethod
    def of(cls, rows: _Rows) -> _Sorted:
        """Of one row at least."""
        order = np.lexsort((rows.since, rows.identity))
        identity, since, until = (column[order] for column in rows)
        first = np.r_[True, identity[1:] != identity[:-1]]
        rank = np.cumsum(first)
        covered = np.maximum.accumulate(rank << _VERSION_BITS | until) & ((1 << _VERSION_BITS) - 1)
        return cls(identity, since, first, rank, covered)


def _part(folder: RunFolder, number: int, parts: int) -> _Rows:
    return _chosen(folder, lambda shown: (shown.producer + shown.sequence) % parts == number)


def _chosen(folder: RunFolder, mine: Callable[[Shown], np.ndarray]) -> _Rows:
    """Those of the identified rows, of all versions."""
    chosen = [_Rows(*(np.zeros(0, np.int64),) * 3)]
    for shown in versions.rows(folder):
        rows = shown.identified & mine(shown)
        chosen.append(_Rows(_identity(shown.producer, shown.sequence)[rows], shown.since[rows], shown.until[rows]))
    return _Rows(*(np.concatenate(columns) for columns in zip(*chosen, strict=True)))


def _identity(producer: np.ndarray, sequence: np.ndarray) -> np.ndarray:
    """As one number."""
    return np.asarray(producer << _SEQUENCE_BITS | sequence)


def _gaps(rows: _Rows, whole: np.ndarray) -> Gaps:
    """``whole`` counts before each version, and behind the last, those of which all files could be read."""
    if not len(rows.identity):
        return NOTHING
    shown = _Sorted.of(rows)
    identity, rank, covered = shown.identity, shown.rank, shown.covered
    last, following = np.r_[shown.first[1:], True], np.r_[shown.since[1:], STILL]
    back = np.where(last, len(whole) - 1, np.minimum(following, len(whole) - 1))
    ended = np.flatnonzero((covered < back) & (whole[back] > whole[np.minimum(covered, len(whole) - 1)]))
    ended = ended[np.r_[True, rank[ended][1:] != rank[ended][:-1]]] if len(ended) else ended  # of each the first time
    return Gaps(
        (identity[ended] >> _SEQUENCE_BITS) & MAX_PRODUCER,
        identity[ended] & ((1 << _SEQUENCE_BITS) - 1),
        covered[ended] - 1,
        covered[ended],
        np.where(last[ended], -1, following[ended]),
    )


def vanished(gone: Gaps, matched: Matching, known: Known | None) -> Iterator[Finding]:
    """The findings about records that were sent. ``matched`` holds each that ``gone`` names."""
    sent = matched.sent
    identity = _identity(sent.producer, sent.sequence)
    order = np.argsort(identity, kind="stable")
    sought = _identity(gone.producer, gone.sequence)
    at = np.searchsorted(identity[order], sought)
    copies = np.bincount(matched.send[matched.was_sent], minlength=len(sent))
    for number, place in enumerate(at):
        row = int(order[place]) if place < len(order) else -1
        if row < 0 or identity[row] != sought[number] or sent.rejected[row]:
            continue
        last, version, back = int(gone.last[number]), int(gone.gone[number]), int(gone.back[number])
        again = f"{_told(known, back)} did again" if back >= 0 else "and none after it"
        detail = f"{_told(known, last)} still showed it, {_told(known, version)} did not, {again}"
        yield Finding(
            Anomaly.VANISHED,
            int(gone.producer[number]),
            int(gone.sequence[number]),
            int(copies[row]),
            row,
            (),
            detail=detail,
            about=(known.at_ms[version],) if known is not None and version < len(known.at_ms) else (),
        )


def _told(known: Known | None, version: int) -> str:
    return known.told[version] if known is not None and version < len(known.told) else f"the version behind {version} others"


def check_versions(folder: RunFolder, delivered: int) -> None:
    """Raises EvidenceError where ``versions/`` does not fit ``delivered/``, which holds so many records: what its newest version shows."""
    known = versions.known(folder)
    there, still, highest = False, 0, -1
    for shown in versions.rows(folder):
        there, ends = True, shown.until[shown.until < STILL]
        still += int((shown.until == STILL).sum())
        highest = max(highest, int(shown.since.max(initial=-1)), int(ends.max(initial=-1)))
    if known is None:
        if there:
            raise EvidenceError(f"{folder.known_versions} is missing, and {folder.versions} holds what versions showed")
        return
    if highest >= len(known.told):
        raise EvidenceError(f"{folder.known_versions} has {len(known.told)} versions, {folder.versions} holds a row of version {highest}")
    if there and still != delivered:
        raise EvidenceError(f"the newest version of {folder.versions} shows {still} records, {folder.delivered} holds {delivered}")


def unseen(folder: RunFolder) -> list[str]:
    """What is not known of the versions, a sentence each."""
    known = versions.known(folder)
    return ["the output keeps no versions"] if known is None else list(known.unread)
