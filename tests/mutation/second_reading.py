"""A drain that misreads: what it wrote differs from what a second reader found. The suites must name a disagreement, and no record."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.payloads import PAYLOADS, write_payloads
from streamproof.evidence.second_reading import SecondReading, Stretch, everything
from tests.mutation.damage import Damage
from tests.mutation.evidence import Columns, Evidence

DAMAGES: dict[str, Damage] = {}
COMPLAINT = "the drain and the second reader of the output do not agree: "
STRETCH = 7
Misread = Callable[[Evidence, np.ndarray, np.random.Generator], object]


def read_twice(evidence: Evidence, rng: np.random.Generator, whole: bool) -> np.ndarray:
    """Have a second reader read what is there now, or stretches of it. Returns the delivered rows that it read."""
    columns, ends = dict(evidence.delivered), _ends(evidence.delivered)
    stretches = everything(ends) if whole else _some(ends, rng)
    rows = np.flatnonzero(_within(columns, stretches))

    def write(folder: RunFolder) -> None:
        folder.delivered_again.mkdir(exist_ok=True)
        for old in folder.delivered_again.glob("*"):
            old.unlink()
        write_payloads(folder.delivered_again, 0, _raw({name: column[rows] for name, column in columns.items()}))
        SecondReading(whole, len(rows), ends, stretches).write(folder)

    evidence.reread, evidence.stretches = write, stretches
    return rows


def _ends(columns: Columns) -> dict[int, int]:
    """As :meth:`Evidence.write` has them: all partitions end where the longest does."""
    return {int(number): int(columns["offset"].max()) + 1 for number in np.unique(columns["partition"])}


def _some(ends: dict[int, int], rng: np.random.Generator) -> tuple[Stretch, ...]:
    """Every stretch with a chance of one half; the last ones always."""
    candidates = [
        Stretch(partition, max(until - STRETCH, 0), until) for partition, end in ends.items() for until in range(end, 0, -STRETCH)
    ]
    return tuple(sorted(one for one in candidates if one.until == ends[one.partition] or rng.random() < 0.5))


def _within(columns: Columns, stretches: tuple[Stretch, ...]) -> np.ndarray:
    found = np.zeros(len(columns["offset"]), bool)
    for one in stretches:
        found |= (columns["partition"] == one.partition) & (columns["offset"] >= one.since) & (columns["offset"] < one.until)
    return found


def _raw(columns: Columns) -> dict[str, list[object]]:
    """Keys and values of these records. Nothing is said here of their checksums: histories without ``sha256`` are held to the drain's."""
    known = {name: [None if value < 0 else value for value in columns[name].tolist()] for name in PAYLOADS.names[:6]}
    ids = zip(columns["producer"].tolist(), columns["sequence"].tolist(), strict=True)
    values = [b"?" if min(one) < 0 else b'{"id":"%04x-%012x-00000002-00000000","payload":{}}' % one for one in ids]
    return {**known, "key": [None] * len(values), "value": values}


# --- what a drain may read wrongly ------------------------------------------------------------------------------------------------------


def _damage(misread: Misread) -> Misread:
    """Register two kinds: of an output that was read twice as a whole, and of one that was in stretches."""
    for whole in (True, False):

        def damage(evidence: Evidence, rng: np.random.Generator, whole: bool = whole) -> bool:
            rows = read_twice(evidence, rng, whole) if len(evidence.ids) else np.zeros(0, np.int64)
            if not len(rows) or misread(evidence, rows, rng) is False:
                return False
            evidence.spoilt, evidence.only_suites = COMPLAINT, True
            return True

        DAMAGES[f"{misread.__name__}_{'anywhere' if whole else 'in_a_stretch'}"] = damage
    return misread


@_damage
def the_drain_leaves_records_out(evidence: Evidence, rows: np.ndarray, rng: np.random.Generator) -> None:
    mask = np.ones(len(evidence.ids), bool)
    mask[rng.choice(rows, int(rng.integers(1, min(len(rows), 5) + 1)), replace=False)] = False
    evidence.keep(mask)


@_damage
def the_drain_reads_one_more(evidence: Evidence, rows: np.ndarray, rng: np.random.Generator) -> bool:
    """In a gap between two offsets."""
    places = set(zip(evidence.delivered["partition"].tolist(), evidence.delivered["offset"].tolist(), strict=True))
    for row, step in itertools.product(rng.permutation(rows).tolist(), (-1, 1)):
        place = int(evidence.delivered["partition"][row]), int(evidence.delivered["offset"][row]) + step
        if place not in places and _is_read_again(evidence, place):
            more = {name: column[[row]].copy() for name, column in evidence.delivered.items()}
            more["offset"][:] = place[1]
            evidence.delivered = {name: np.concatenate([column, more[name]]) for name, column in evidence.delivered.items()}
            return True
    return False


def _is_read_again(evidence: Evidence, place: tuple[int, int]) -> bool:
    return any(one.partition == place[0] and one.since <= place[1] < one.until for one in evidence.stretches)


@_damage
def the_drain_takes_a_record_for_another(evidence: Evidence, rows: np.ndarray, rng: np.random.Generator) -> bool:
    row, other = int(rng.choice(rows)), int(rng.integers(0, len(evidence.ids)))
    if evidence.ids[row] == evidence.ids[other]:
        return False
    for name in ("producer", "sequence", "crc"):
        evidence.set(evidence.delivered, name, row, evidence.delivered[name][other])
    return True


@_damage
def the_drain_reads_no_identity(evidence: Evidence, rows: np.ndarray, rng: np.random.Generator) -> bool:
    row = int(rng.choice(rows))
    if evidence.delivered["producer"][row] < 0:
        return False
    for name in ("producer", "sequence", "crc"):
        evidence.set(evidence.delivered, name, row, -1)
    return True


@_damage
def the_drain_misreads_the_origin(evidence: Evidence, rows: np.ndarray, rng: np.random.Generator) -> None:
    name, row = str(rng.choice(["start", "batch", "attempt"])), int(rng.choice(rows))
    evidence.set(evidence.delivered, name, row, evidence.delivered[name][row] + 1)


@_damage
def the_drain_misreads_a_time(evidence: Evidence, rows: np.ndarray, rng: np.random.Generator) -> None:
    row = int(rng.choice(rows))
    evidence.set(evidence.delivered, "delivered_at", row, evidence.delivered["delivered_at"][row] + 1)


@_damage
def the_drain_swaps_two_offsets(evidence: Evidence, rows: np.ndarray, rng: np.random.Generator) -> bool:
    row = int(rng.choice(rows))
    others = np.flatnonzero((evidence.delivered["partition"] == evidence.delivered["partition"][row]) & (evidence.ids != evidence.ids[row]))
    if not len(others):
        return False
    pair = [row, int(rng.choice(others))]
    evidence.set(evidence.delivered, "offset", pair, evidence.delivered["offset"][pair[::-1]])
    return True


@_damage
def the_drain_stops_early(evidence: Evidence, rows: np.ndarray, rng: np.random.Generator) -> bool:
    """And believes that it is at the end."""
    last = int(evidence.delivered["offset"].max())
    mask = evidence.delivered["offset"] < last - int(rng.integers(0, 4))
    if not mask.any():
        return False
    evidence.keep(mask)
    return True


@_damage
def somebody_writes_after_the_drain(evidence: Evidence, rows: np.ndarray, rng: np.random.Generator) -> None:
    """The second reader reads as far as the drain did, and asks where the output ends: it ends later."""
    read_again, partition, more = evidence.reread, int(rng.choice(evidence.delivered["partition"])), int(rng.integers(1, 5))
    assert read_again is not None

    def write(folder: RunFolder) -> None:
        read_again(folder)
        reading = SecondReading.read(folder)
        assert reading is not None
        replace(reading, ends={**reading.ends, partition: reading.ends[partition] + more}).write(folder)

    evidence.reread = write


# --- what is legal ----------------------------------------------------------------------------------------------------------------------


def an_output_that_was_read_twice(evidence: Evidence, rng: np.random.Generator) -> None:
    """By two who read the same. It comes last, so that nothing changes behind it."""
    if len(evidence.ids):
        read_twice(evidence, rng, bool(rng.random() < 0.5))
