"""Outputs that keep versions: what each version showed, in ways that are right and in ways that are not.

The rows of ``versions/`` are made from the delivered ones when the evidence is written, so that the newest version shows what was
delivered, whatever else was done to it. Files are written anew now and then, as compactions do: then a row ends, and another begins.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.versions import SHOWN
from tests.mutation.damage import CAREFUL, covered, damage, some

if TYPE_CHECKING:
    from tests.mutation.evidence import Columns, Evidence

STILL = -1
LATER_MS = 4_000_000_000_000
Row = tuple[int, int, int, int]
"""Producer, sequence (-1: none), since, until."""


@dataclass(frozen=True)
class Versions:
    """``gaps`` are the versions from which until before which all copies of a record, by its identity, are not there; ``more`` are rows
    besides those of what was delivered. A file of each of ``unread`` cannot be read. The versions before
    ``late`` were committed at ``early_ms``; the others later than anything, so that the times of the copies are what counts."""

    count: int
    seed: int
    gaps: dict[tuple[int, int], tuple[int, int]]
    more: tuple[Row, ...] = ()
    unread: frozenset[int] = frozenset()
    early_ms: int = 0
    late: int = 0

    def at_ms(self, number: int) -> int:
        return self.early_ms if number < self.late else LATER_MS + number

    def showing(self, *rows: Row) -> Versions:
        """The same, with more rows."""
        return replace(self, more=(*self.more, *rows))

    def rows(self, delivered: Columns) -> list[Row]:
        rng = np.random.default_rng(self.seed)
        found: list[Row] = []
        for producer, sequence in zip(delivered["producer"].tolist(), delivered["sequence"].tolist(), strict=True):
            gap = self.gaps.get((producer, sequence))
            if gap is None:
                found += _anew(rng, producer, sequence, int(rng.integers(0, self.count)), STILL, self.count)
                continue
            found += _anew(rng, producer, sequence, 0, gap[0], self.count)
            found += _anew(rng, producer, sequence, gap[1], STILL, self.count)
        found += self.more
        return [found[place] for place in rng.permutation(len(found))]

    def write(self, folder: RunFolder, delivered: Columns) -> None:
        folder.versions.mkdir(exist_ok=True)
        columns = zip(*self.rows(delivered), strict=True) if len(delivered["producer"]) or self.more else ([], [], [], [])
        arrays = [
            pa.array([None if value < 0 else value for value in column], each.type) for column, each in zip(columns, SHOWN, strict=True)
        ]
        pq.write_table(pa.Table.from_arrays(arrays, schema=SHOWN), folder.versions / "shown.parquet")
        nothing = {"added": 0, "removed": 0, "records": None}
        said = [
            {"at_ms": self.at_ms(number), "told": f"version {number}", "whole": number not in self.unread} for number in range(self.count)
        ]
        said = [{**one, **nothing} for one in said]
        unread = ["a file cannot be read any more"] if self.unread else []
        folder.known_versions.write_text(json.dumps({"versions": said, "unread": unread}))


def _anew(rng: np.random.Generator, producer: int, sequence: int, since: int, until: int, count: int) -> list[Row]:
    """A row that is there from one version until before another, in pieces that touch or overlap."""
    found, end = [], count if until == STILL else until
    while since + 1 < end and rng.random() < 0.3:
        cut = int(rng.integers(since + 1, end))
        found.append((producer, sequence, since, min(cut + int(rng.random() < 0.2), end) if until != STILL or cut + 1 < end else cut))
        since = cut
    return [*found, (producer, sequence, since, until)]


def made(rng: np.random.Generator) -> Versions:
    return Versions(int(rng.integers(6, 20)), int(rng.integers(0, 1 << 30)), {})


# --- what is wrong ------------------------------------------------------------------------------------------------------------------


def _gap(versions: Versions, rng: np.random.Generator) -> tuple[int, int]:
    gone = int(rng.integers(1, versions.count - 1))
    return gone, int(rng.integers(gone + 1, min(gone + 3, versions.count - 1) + 1))


def _vanish(evidence: Evidence, records: np.ndarray, gap: tuple[int, int]) -> bool:
    assert evidence.versions is not None
    named = [evidence.id_of(int(record)) for record in records]
    evidence.versions = replace(evidence.versions, gaps={**evidence.versions.gaps, **dict.fromkeys(named, gap)})
    evidence.must("VANISHED", *(int(record) for record in records))
    return len(records) > 0


@damage
def a_record_that_a_version_lacks(evidence: Evidence, rng: np.random.Generator) -> bool:
    once = evidence.once()
    if evidence.versions is None or not len(once):
        return False
    return _vanish(evidence, rng.choice(once, 1), _gap(evidence.versions, rng))


@damage
def many_records_that_some_versions_lack(evidence: Evidence, rng: np.random.Generator) -> bool:
    """A table that was restored to what it was, and filled again."""
    once = evidence.once()
    if evidence.versions is None or not len(once):
        return False
    chosen = once[rng.random(len(once)) < 0.3]
    return len(chosen) > 0 and _vanish(evidence, chosen, _gap(evidence.versions, rng))


@damage
def a_record_that_was_there_and_is_gone(evidence: Evidence, rng: np.random.Generator) -> bool:
    """A table that was restored to what it was; the batch is taken for done."""
    once = evidence.once()
    if evidence.versions is None or not len(once):
        return False
    record = int(rng.choice(once))
    evidence.lose([record])
    gone, _ = _gap(evidence.versions, rng)
    evidence.versions = evidence.versions.showing((*evidence.id_of(record), 0, gone))
    evidence.must("VANISHED", record)
    return True


@damage
def a_record_of_unknown_outcome_that_was_there(evidence: Evidence, rng: np.random.Generator) -> bool:
    """It need not be delivered; but it was."""
    absent = np.flatnonzero((evidence.sent["outcome"] == "INDETERMINATE") & ~np.isin(evidence.sent_ids, evidence.ids))
    if evidence.versions is None or not len(absent):
        return False
    record = int(rng.choice(absent))
    evidence.versions = evidence.versions.showing((*evidence.id_of(record), *_gap(evidence.versions, rng)))
    evidence.must("VANISHED", record)
    return True


@damage
def a_record_that_comes_back_twice(evidence: Evidence, rng: np.random.Generator) -> bool:
    once = evidence.once()
    if evidence.versions is None or not len(once) or "DUPLICATED" in evidence.truth:
        return False
    record = int(rng.choice(once))
    evidence.add(evidence.rows_of([record]))
    evidence.must("DUPLICATED", record)
    return _vanish(evidence, np.array([record]), _gap(evidence.versions, rng))


@damage
def a_record_that_a_version_lacks_beside_one_that_cannot_be_read(evidence: Evidence, rng: np.random.Generator) -> bool:
    once = evidence.once()
    if evidence.versions is None or not len(once) or evidence.versions.count < 8:
        return False
    gone = int(rng.integers(1, evidence.versions.count - 4))
    evidence.versions = replace(evidence.versions, unread=frozenset({gone}))
    evidence.unjudged = True
    return _vanish(evidence, rng.choice(once, 1), (gone, gone + 2))


@damage
def a_record_that_came_back_after_its_commit(evidence: Evidence, rng: np.random.Generator) -> bool:
    """It was there in time, taken back, and there again after the commit of its offset."""
    if (
        evidence.versions is None
        or evidence.guarantee not in CAREFUL
        or "OFFSET_AHEAD" in evidence.truth
        or evidence.lived
        or evidence.steps
    ):
        return False
    passed = covered(evidence, some(rng, evidence.once()))
    if not len(passed):
        return False
    gone, back = _gap(evidence.versions, rng)
    _written_anew(evidence, passed[:1], back)
    evidence.must("OFFSET_AHEAD", int(passed[0]))
    return _vanish(evidence, passed[:1], (gone, back))


# --- what cannot be judged ----------------------------------------------------------------------------------------------------------


@damage
def a_version_that_cannot_be_read(evidence: Evidence, rng: np.random.Generator) -> bool:
    """What it lacks it may have had."""
    once = evidence.once()
    if evidence.versions is None or not len(once):
        return False
    gap = _gap(evidence.versions, rng)
    named = evidence.id_of(int(rng.choice(once)))
    evidence.versions = replace(evidence.versions, gaps={**evidence.versions.gaps, named: gap}, unread=frozenset(range(*gap)))
    evidence.unjudged = True
    return True


@damage
def an_output_whose_versions_nobody_read(evidence: Evidence, rng: np.random.Generator) -> bool:
    if evidence.versions is None:
        return False
    evidence.versions, evidence.unjudged = None, True
    return True


# --- evidence that must not be judged -----------------------------------------------------------------------------------------------


@damage
def a_row_of_a_version_that_there_is_not(evidence: Evidence, rng: np.random.Generator) -> bool:
    if evidence.versions is None:
        return False
    count = evidence.versions.count
    row = (0, 0, 1, count + 1) if rng.random() < 0.5 else (0, 0, count, count + 2)
    evidence.versions = evidence.versions.showing(row)
    evidence.spoilt = "version"
    return True


@damage
def a_row_that_was_gone_before_it_was_there(evidence: Evidence, rng: np.random.Generator) -> bool:
    if evidence.versions is None:
        return False
    since = int(rng.integers(1, evidence.versions.count))
    row = (0, 0, since, int(rng.integers(0, since + 1)))
    evidence.versions = evidence.versions.showing(row)
    evidence.spoilt = "gone before it was there"
    return True


@damage
def a_newest_version_that_shows_more_than_was_delivered(evidence: Evidence, rng: np.random.Generator) -> bool:
    if evidence.versions is None:
        return False
    evidence.versions = evidence.versions.showing((0, 0, 0, STILL))
    evidence.spoilt, evidence.only_checkers = "the newest version", True
    return True


# --- what may happen ----------------------------------------------------------------------------------------------------------------


def rows_that_came_and_went(evidence: Evidence, rng: np.random.Generator) -> None:
    """A second copy that was taken away again, a record that was refused, one without an identity, one that nobody sent."""
    if evidence.versions is None:
        return
    gap, more = _gap(evidence.versions, rng), [(-1, -1), (0xFFFE, 77)]
    more += [evidence.id_of(int(record)) for record in np.flatnonzero(evidence.sent["outcome"] == "REJECTED")]
    rows = [(*named, *gap) for named in more if named[0] != 0xFFFE or not evidence.was_sent(*named)]
    evidence.versions = evidence.versions.showing(*rows)


def files_that_are_written_anew(evidence: Evidence, rng: np.random.Generator) -> None:
    """Long after the commit, by somebody else, with rows that each version showed."""
    if evidence.versions is None or evidence.lived or evidence.steps or not len(evidence.once()):
        return
    _written_anew(evidence, some(rng, evidence.once()), evidence.versions.count)


def _written_anew(evidence: Evidence, records: np.ndarray, late: int) -> None:
    """The copies of these records have the time of a file that was written after all commits. The versions before ``late`` were committed
    before anything was."""
    assert evidence.versions is not None
    early_ms = int(evidence.delivered["delivered_at"].min()) - 1
    evidence.versions = replace(evidence.versions, early_ms=early_ms, late=late)
    evidence.set(evidence.delivered, "delivered_at", evidence.rows_of(records), int(evidence.delivered["delivered_at"].max()) + 3_600_000)
