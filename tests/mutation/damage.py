"""The kinds of damage. Each changes the evidence in place and adds to its truth what must now be found; it returns False, and has changed
nothing, where the history offers nothing to damage in this way.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.mutation.evidence import ACKED, INDETERMINATE, REJECTED, Evidence, milliseconds, stamp

Damage = Callable[[Evidence, np.random.Generator], bool]
DAMAGES: dict[str, Damage] = {}
Choose = Callable[[Evidence, np.random.Generator], np.ndarray]


def damage(function: Damage) -> Damage:
    DAMAGES[function.__name__] = function
    return function


def some(rng: np.random.Generator, rows: np.ndarray, most: int = 10) -> np.ndarray:
    return np.sort(rng.choice(rows, min(len(rows), int(rng.integers(1, most + 1))), replace=False)) if len(rows) else rows


def _any(evidence: Evidence, rng: np.random.Generator) -> int | None:
    """A record that was ACKED and delivered once."""
    rows = evidence.once()
    return int(rng.choice(rows)) if len(rows) else None


def _row(evidence: Evidence, record: int) -> int:
    (row,) = evidence.rows_of([record])
    return int(row)


def _delivered_once(evidence: Evidence, rows: np.ndarray) -> np.ndarray:
    """The records behind these delivered rows that were ACKED and delivered once."""
    once = evidence.once()
    return once[np.isin(evidence.sent_ids[once], evidence.ids[rows])]


# --- records that go ----------------------------------------------------------------------------------------------------------------


def _drops(name: str, choose: Choose) -> None:
    def drop(evidence: Evidence, rng: np.random.Generator) -> bool:
        records = choose(evidence, rng)
        if len(records):
            evidence.lose(int(record) for record in records)
        return len(records) > 0

    DAMAGES[name] = drop


def _partition(evidence: Evidence, rng: np.random.Generator, side: str = "delivered") -> np.ndarray:
    column = getattr(evidence, side)["partition"]
    return np.flatnonzero(column == rng.choice(np.unique(column)))


def _ends(evidence: Evidence, rng: np.random.Generator, last: bool, count: int) -> np.ndarray:
    rows = _partition(evidence, rng)
    order = rows[np.argsort(evidence.delivered["offset"][rows])]
    return _delivered_once(evidence, order[-count:] if last else order[:count])


def _of_batch(evidence: Evidence, rng: np.random.Generator) -> np.ndarray:
    """The delivered rows of a micro-batch; empty when none says its batch."""
    batches = np.unique(evidence.delivered["batch"])
    batches = batches[batches >= 0]
    return np.flatnonzero(evidence.delivered["batch"] == rng.choice(batches)) if len(batches) else np.zeros(0, int)


def _of_batch_records(evidence: Evidence, rng: np.random.Generator) -> np.ndarray:
    return _delivered_once(evidence, _of_batch(evidence, rng))


def _task_of_batch(evidence: Evidence, rng: np.random.Generator) -> np.ndarray:
    records = _of_batch_records(evidence, rng)
    partitions = evidence.sent["partition"][records]
    return records[partitions == rng.choice(partitions)] if len(records) else records


def _edge_of_batch(last: bool) -> Choose:
    def choose(evidence: Evidence, rng: np.random.Generator) -> np.ndarray:
        records = _task_of_batch(evidence, rng)
        order = np.argsort(evidence.sent["offset"][records])
        return records[order[-1:] if last else order[:1]]

    return choose


def _grown(last_before: bool) -> Choose:
    """Where a partition was added: its first record, or the last one of another before it."""

    def choose(evidence: Evidence, rng: np.random.Generator) -> np.ndarray:
        once, sent = evidence.once(), evidence.sent
        first = {int(p): int(np.flatnonzero(sent["partition"] == p)[0]) for p in np.unique(sent["partition"][once])}
        newest = max(first, key=first.__getitem__, default=-1)
        if newest < 0 or first[newest] < len(sent["partition"]) // 3:
            return np.zeros(0, int)
        if last_before:
            return once[once < first[newest]][-1:]
        mine = once[sent["partition"][once] == newest]
        return mine[:1]

    return choose


def _same(column: str) -> Choose:
    def choose(evidence: Evidence, rng: np.random.Generator) -> np.ndarray:
        once = evidence.once()
        values = evidence.sent[column][once]
        return once[values == rng.choice(values)] if len(once) else once

    return choose


_drops("drop_one", lambda e, rng: some(rng, e.once(), 1))
_drops("drop_some", lambda e, rng: some(rng, e.once(), 20))
_drops("drop_the_first_of_the_source", lambda e, rng: e.once()[:1])
_drops("drop_the_last_of_the_source", lambda e, rng: e.once()[-1:])
_drops("drop_the_first_of_a_partition", lambda e, rng: _ends(e, rng, False, 1))
_drops("drop_the_last_of_a_partition", lambda e, rng: _ends(e, rng, True, 1))
_drops("drop_the_tail_of_a_partition", lambda e, rng: _ends(e, rng, True, int(rng.integers(2, 30))))
_drops("drop_the_head_of_a_partition", lambda e, rng: _ends(e, rng, False, int(rng.integers(2, 30))))
_drops("drop_a_source_partition", _same("partition"))
_drops("drop_an_output_partition", lambda e, rng: _delivered_once(e, _partition(e, rng)))
_drops("drop_a_key", _same("key"))
_drops("drop_a_producer", _same("producer"))
_drops("drop_a_batch", _of_batch_records)
_drops("drop_a_task_of_a_batch", _task_of_batch)
_drops("drop_the_first_of_a_batch", _edge_of_batch(False))
_drops("drop_the_last_of_a_batch", _edge_of_batch(True))
_drops("drop_every_tenth", lambda e, rng: e.once()[int(rng.integers(0, 10)) :: 10])
_drops("drop_the_first_of_an_added_partition", _grown(False))
_drops("drop_the_last_before_a_partition_was_added", _grown(True))
_drops("drop_all", lambda e, rng: e.once())


@damage
def truncate_the_tail(evidence: Evidence, rng: np.random.Generator) -> bool:
    """The last rows of the files are missing, as if the drain had stopped early and said that it had not."""
    count = int(rng.integers(1, 40))
    records = _delivered_once(evidence, np.arange(len(evidence.ids))[-count:])
    if len(records):
        evidence.lose(int(record) for record in records)
    return len(records) > 0


# --- copies too many ----------------------------------------------------------------------------------------------------------------


def _twice(evidence: Evidence, rows: np.ndarray) -> None:
    """These rows are about to be there once more."""
    known = np.isin(evidence.sent_ids, evidence.ids[rows]) & (evidence.sent["outcome"] != REJECTED)
    for record in np.flatnonzero(known):
        evidence.truth["DUPLICATED", *evidence.id_of(int(record))] = 1


def _doubles(name: str, choose: Callable[[Evidence, np.random.Generator], np.ndarray], **changed: int) -> None:
    def double(evidence: Evidence, rng: np.random.Generator) -> bool:
        rows = choose(evidence, rng)
        if len(rows):
            _twice(evidence, rows)
            evidence.add(rows, **changed)
        return len(rows) > 0

    DAMAGES[name] = double


def _rows(records: Choose) -> Choose:
    return lambda evidence, rng: evidence.rows_of(int(record) for record in records(evidence, rng))


_doubles("double_one", _rows(lambda e, rng: some(rng, e.once(), 1)))
_doubles("double_some", _rows(lambda e, rng: some(rng, e.once(), 20)))
_doubles("double_by_a_second_attempt", _rows(lambda e, rng: some(rng, e.once(), 20)), attempt=9)
_doubles("double_the_first", _rows(lambda e, rng: e.once()[:1]))
_doubles("double_the_last", _rows(lambda e, rng: e.once()[-1:]))
_doubles("replay_a_batch_under_its_name", _of_batch)
_doubles("replay_a_batch_by_a_later_start", lambda e, rng: _whole_write_set(e, rng), start=77)
_doubles("replay_a_task_under_its_name", _rows(_task_of_batch))
_doubles("replay_the_tail_of_a_partition", _rows(lambda e, rng: _ends(e, rng, True, int(rng.integers(2, 30)))))
_doubles("double_the_first_of_an_added_partition", _rows(_grown(False)))
_doubles("double_all", lambda e, rng: np.arange(len(e.ids)))


def _whole_write_set(evidence: Evidence, rng: np.random.Generator) -> np.ndarray:
    """The rows of a batch that one start wrote, as long as each record of it is there once."""
    rows = _of_batch(evidence, rng)
    return rows if len(np.unique(evidence.ids[rows])) == len(rows) else rows[:0]


@damage
def triple_one(evidence: Evidence, rng: np.random.Generator) -> bool:
    record = _any(evidence, rng)
    if record is None:
        return False
    row = evidence.rows_of([record])
    _twice(evidence, row)
    evidence.add(np.repeat(row, 2))
    return True


@damage
def double_into_another_partition(evidence: Evidence, rng: np.random.Generator) -> bool:
    record = _any(evidence, rng)
    if record is None:
        return False
    row = evidence.rows_of([record])
    _twice(evidence, row)
    evidence.add(row, partition=int(evidence.delivered["partition"].max()) + 1)
    return True


@damage
def resurrect_an_aborted_batch(evidence: Evidence, rng: np.random.Generator) -> bool:
    """A start before wrote the batch, and its transaction was aborted: it is visible all the same, before the replay."""
    rows = _whole_write_set(evidence, rng)
    if not len(rows):
        return False
    _twice(evidence, rows)
    _before(evidence, rows, 66)
    return True


@damage
def resurrect_a_task_of_an_aborted_batch(evidence: Evidence, rng: np.random.Generator) -> bool:
    batch = _whole_write_set(evidence, rng)
    acked = np.isin(evidence.ids[batch], evidence.sent_ids[evidence.sent["outcome"] == ACKED])
    partitions = evidence.delivered["partition"][batch]
    if not len(batch) or len(np.unique(partitions[acked])) < 2:
        return False
    rows = batch[partitions == rng.choice(partitions)]
    _twice(evidence, rows)
    if "atomic" in evidence.promises:
        evidence.truth["TORN", 66, int(evidence.delivered["batch"][rows[0]])] = 1
    _before(evidence, rows, 66)
    return True


def _before(evidence: Evidence, rows: np.ndarray, start: int) -> None:
    """Deliver these rows once more by another start, before their partitions' first record of the batch."""
    delivered = evidence.delivered
    more = {name: column[rows].copy() for name, column in delivered.items()}
    more["start"][:] = start
    begin = int(more["delivered_at"].min())
    more["delivered_at"][:] = begin - 1
    offset = delivered["offset"].copy()
    for number in np.unique(more["partition"]):
        here = more["partition"] == number
        first = int(more["offset"][here].min())
        later = (delivered["partition"] == number) & (delivered["offset"] >= first)
        offset[later] += int(np.ptp(more["offset"][here])) + 1
    evidence.delivered = {name: np.concatenate([offset if name == "offset" else delivered[name], more[name]]) for name in delivered}


@damage
def double_an_indeterminate_one(evidence: Evidence, rng: np.random.Generator) -> bool:
    """A send of which nobody knows may be there once, and no more."""
    record = _any(evidence, rng)
    if record is None:
        return False
    _undecide(evidence, record)
    row = evidence.rows_of([record])
    _twice(evidence, row)
    evidence.add(row)
    return True


@damage
def double_an_unsettled_one(evidence: Evidence, rng: np.random.Generator) -> bool:
    """A send that was intended, and of which the generator could write no outcome down."""
    record = _any(evidence, rng)
    if record is None:
        return False
    row = evidence.rows_of([record])
    _twice(evidence, row)
    evidence.add(row)
    evidence.unsettle(np.array([record]))
    return True


def _undecide(evidence: Evidence, record: int) -> None:
    evidence.set(evidence.sent, "outcome", record, INDETERMINATE)
    evidence.set(evidence.sent, "offset", record, -1)


@damage
def a_file_that_is_there_twice(evidence: Evidence, rng: np.random.Generator) -> bool:
    rows = np.arange(len(evidence.ids))
    half = rows[: len(rows) // 2] if rng.random() < 0.5 else rows[len(rows) // 2 :]
    if not len(half):
        return False
    evidence.spoilt = "holds two records at one place"
    evidence.delivered = {name: np.concatenate([column, column[half]]) for name, column in evidence.delivered.items()}
    return True


# --- records that nobody sent -------------------------------------------------------------------------------------------------------


def _stranger(evidence: Evidence, producer: int, sequence: int, times: int = 1) -> bool:
    if not len(evidence.ids) or evidence.was_sent(producer, sequence):
        return False
    for _ in range(times):
        evidence.deliver(producer, sequence)
    evidence.truth["PHANTOM", producer, sequence] = 1
    return True


def _next(evidence: Evidence, rng: np.random.Generator) -> tuple[int, int]:
    producer = int(rng.choice(evidence.sent["producer"]))
    return producer, int(evidence.sent["sequence"][evidence.sent["producer"] == producer].max()) + 1


@damage
def phantom_behind_the_last(evidence: Evidence, rng: np.random.Generator) -> bool:
    producer, sequence = _next(evidence, rng)
    return sequence < 1 << 48 and _stranger(evidence, producer, sequence)


@damage
def phantom_twice(evidence: Evidence, rng: np.random.Generator) -> bool:
    producer, sequence = _next(evidence, rng)
    return sequence < 1 << 48 and _stranger(evidence, producer, sequence, 2)


@damage
def phantom_of_a_producer_that_is_none(evidence: Evidence, rng: np.random.Generator) -> bool:
    return _stranger(evidence, int(rng.integers(100, 0x7FFF)), int(rng.integers(0, 100)))


@damage
def phantom_with_the_largest_identity(evidence: Evidence, rng: np.random.Generator) -> bool:
    return _stranger(evidence, 0xFFFF, 0xFFFF_FFFF_FFFF)


def _refuse(evidence: Evidence, rng: np.random.Generator, times: int) -> bool:
    """A send that the broker had refused is in the output."""
    record = _any(evidence, rng)
    if record is None:
        return False
    evidence.set(evidence.sent, "outcome", record, REJECTED)
    evidence.set(evidence.sent, "offset", record, -1)
    evidence.must("PHANTOM", record)
    if times > 1:
        evidence.add(evidence.rows_of([record]))
    return True


@damage
def phantom_of_a_refused_one(evidence: Evidence, rng: np.random.Generator) -> bool:
    return _refuse(evidence, rng, 1)


@damage
def phantom_of_a_refused_one_twice(evidence: Evidence, rng: np.random.Generator) -> bool:
    return _refuse(evidence, rng, 2)


@damage
def phantom_instead_of_a_record(evidence: Evidence, rng: np.random.Generator) -> bool:
    """The counts are right, the record is another."""
    record, (producer, sequence) = _any(evidence, rng), _next(evidence, rng)
    if record is None or sequence >= 1 << 48 or len(evidence.ids) < 2:
        return False
    evidence.lose([record])
    return _stranger(evidence, producer, sequence)


# --- damaged copies -----------------------------------------------------------------------------------------------------------------


@damage
def flip_a_bit_of_the_checksum(evidence: Evidence, rng: np.random.Generator) -> bool:
    record = _any(evidence, rng)
    if record is None:
        return False
    row = _row(evidence, record)
    evidence.set(evidence.delivered, "crc", row, int(evidence.delivered["crc"][row]) ^ (1 << int(rng.integers(0, 32))))
    evidence.must("CORRUPTED", record)
    return True


@damage
def flip_a_bit_of_the_value(evidence: Evidence, rng: np.random.Generator) -> bool:
    """The payload no longer fits the checksum beside it: the drain writes null."""
    record = _any(evidence, rng)
    if record is None:
        return False
    evidence.set(evidence.delivered, "crc", _row(evidence, record), -1)
    evidence.must("CORRUPTED", record)
    return True


@damage
def flip_a_bit_of_an_unsettled_one(evidence: Evidence, rng: np.random.Generator) -> bool:
    """What was sent is not known, so any checksum fits it; but this copy contradicts its own."""
    record = _any(evidence, rng)
    if record is None:
        return False
    evidence.set(evidence.delivered, "crc", _row(evidence, record), -1)
    evidence.must("CORRUPTED", record)
    evidence.unsettle(np.array([record]))
    return True


@damage
def empty_a_payload(evidence: Evidence, rng: np.random.Generator) -> bool:
    record = _any(evidence, rng)
    if record is None or evidence.sent["crc"][record] == 0:
        return False
    evidence.set(evidence.delivered, "crc", _row(evidence, record), 0)
    evidence.must("CORRUPTED", record)
    return True


def _flip_identity(evidence: Evidence, rng: np.random.Generator, column: str, bits: int) -> bool:
    record = _any(evidence, rng)
    if record is None or not len(evidence.ids):
        return False
    flipped = dict(zip(("producer", "sequence"), evidence.id_of(record), strict=True))
    flipped[column] ^= 1 << int(rng.integers(0, bits))
    if evidence.was_sent(**flipped):
        return False
    row = _row(evidence, record)
    evidence.must_be_torn(np.array([row]))
    evidence.set(evidence.delivered, column, row, flipped[column])
    evidence.must("LOST", record)
    evidence.truth["PHANTOM", flipped["producer"], flipped["sequence"]] += 1
    return True


@damage
def flip_a_bit_of_the_sequence(evidence: Evidence, rng: np.random.Generator) -> bool:
    return _flip_identity(evidence, rng, "sequence", 48)


@damage
def flip_a_bit_of_the_producer(evidence: Evidence, rng: np.random.Generator) -> bool:
    return _flip_identity(evidence, rng, "producer", 15)


def _unname(evidence: Evidence, rng: np.random.Generator, *columns: str) -> bool:
    record = _any(evidence, rng)
    if record is None:
        return False
    row = _row(evidence, record)
    evidence.must_be_torn(np.array([row]))
    for column in columns:
        evidence.set(evidence.delivered, column, row, -1)
    evidence.must("LOST", record)
    evidence.truth["CORRUPTED", None, None] += 1
    return True


@damage
def a_copy_without_identity(evidence: Evidence, rng: np.random.Generator) -> bool:
    return _unname(evidence, rng, "producer", "sequence", "crc")


@damage
def a_copy_without_producer(evidence: Evidence, rng: np.random.Generator) -> bool:
    return _unname(evidence, rng, "producer")


@damage
def a_copy_without_sequence(evidence: Evidence, rng: np.random.Generator) -> bool:
    return _unname(evidence, rng, "sequence")


@damage
def a_tombstone_that_nobody_sent(evidence: Evidence, rng: np.random.Generator) -> bool:
    if not len(evidence.ids):
        return False
    evidence.deliver(-1, -1, -1)
    evidence.truth["CORRUPTED", None, None] += 1
    return True


def _two(evidence: Evidence, rng: np.random.Generator) -> tuple[int, int] | None:
    """Two records, each delivered once, whose payloads differ."""
    once = evidence.once()
    if len(once) < 2:
        return None
    one, other = (int(record) for record in rng.choice(once, 2, replace=False))
    return (one, other) if evidence.sent["crc"][one] != evidence.sent["crc"][other] else None


@damage
def swap_two_payloads(evidence: Evidence, rng: np.random.Generator) -> bool:
    pair = _two(evidence, rng)
    if pair is None:
        return False
    rows = [_row(evidence, record) for record in pair]
    evidence.set(evidence.delivered, "crc", rows, evidence.delivered["crc"][rows[::-1]])
    evidence.must("CORRUPTED", *pair)
    return True


@damage
def the_payload_of_another(evidence: Evidence, rng: np.random.Generator) -> bool:
    pair = _two(evidence, rng)
    if pair is None:
        return False
    evidence.set(evidence.delivered, "crc", _row(evidence, pair[0]), int(evidence.sent["crc"][pair[1]]))
    evidence.must("CORRUPTED", pair[0])
    return True


@damage
def one_record_in_the_place_of_another(evidence: Evidence, rng: np.random.Generator) -> bool:
    """The counts are right: one is missing, one is there twice."""
    pair = _two(evidence, rng)
    if pair is None:
        return False
    gone, again = pair
    evidence.lose([gone])
    row = evidence.rows_of([again])
    _twice(evidence, row)
    evidence.add(row)
    return True


@damage
def a_second_copy_that_is_damaged(evidence: Evidence, rng: np.random.Generator) -> bool:
    record = _any(evidence, rng)
    if record is None:
        return False
    row = evidence.rows_of([record])
    _twice(evidence, row)
    evidence.must("CORRUPTED", record)
    evidence.add(row, crc=int(evidence.sent["crc"][record]) ^ 1)
    return True


# --- order --------------------------------------------------------------------------------------------------------------------------


def _neighbours(evidence: Evidence, rng: np.random.Generator) -> np.ndarray | None:
    """The records of one key and source partition, each delivered once, in the order of the source; None when there are less than three."""
    once, sent = evidence.once(), evidence.sent
    once = once[(sent["key"][once] >= 0) & (sent["offset"][once] >= 0)]
    if not len(once):
        return None
    chosen = int(rng.choice(once))
    mine = once[(sent["key"][once] == sent["key"][chosen]) & (sent["partition"][once] == sent["partition"][chosen])]
    mine = mine[np.argsort(sent["offset"][mine])]
    return mine if len(mine) >= 3 else None


def _exchange(evidence: Evidence, one: int, other: int) -> None:
    """Exchange two rows' offsets in the output (which says nothing of their batches and times)."""
    evidence.set(evidence.delivered, "offset", [one, other], evidence.delivered["offset"][[other, one]])


def _late(evidence: Evidence, *records: int) -> None:
    if "ordered" in evidence.promises:
        evidence.must("REORDERED", *records)


@damage
def swap_two_neighbours_of_a_key(evidence: Evidence, rng: np.random.Generator) -> bool:
    mine = _neighbours(evidence, rng)
    if mine is None:
        return False
    at = int(rng.integers(0, len(mine) - 1))
    one, other = int(mine[at]), int(mine[at + 1])
    _exchange(evidence, _row(evidence, one), _row(evidence, other))
    _late(evidence, one)
    return True


@damage
def the_last_of_a_key_comes_first(evidence: Evidence, rng: np.random.Generator) -> bool:
    """All others of the key are then behind it."""
    mine = _neighbours(evidence, rng)
    if mine is None:
        return False
    rows = [_row(evidence, int(record)) for record in mine]
    evidence.set(evidence.delivered, "offset", rows, np.roll(evidence.delivered["offset"][rows], -1))
    _late(evidence, *(int(record) for record in mine[:-1]))
    return True


@damage
def turn_a_key_round(evidence: Evidence, rng: np.random.Generator) -> bool:
    mine = _neighbours(evidence, rng)
    if mine is None:
        return False
    rows = [_row(evidence, int(record)) for record in mine]
    evidence.set(evidence.delivered, "offset", rows, evidence.delivered["offset"][rows[::-1]])
    _late(evidence, *(int(record) for record in mine[:-1]))
    return True


@damage
def move_to_another_partition(evidence: Evidence, rng: np.random.Generator) -> bool:
    mine = _neighbours(evidence, rng)
    if mine is None:
        return False
    record = int(rng.choice(mine))
    evidence.set(evidence.delivered, "partition", _row(evidence, record), int(evidence.delivered["partition"].max()) + 1)
    _late(evidence, record)
    return True


# --- batches ------------------------------------------------------------------------------------------------------------------------


@damage
def tear_a_batch_between_two_starts(evidence: Evidence, rng: np.random.Generator) -> bool:
    """Every record is there once; but one start made part of the batch visible, a later one the rest."""
    rows = _whole_write_set(evidence, rng)
    acked = rows[np.isin(evidence.ids[rows], evidence.sent_ids[evidence.sent["outcome"] == ACKED])]
    if len(acked) < 2:
        return False
    moved = some(rng, acked, len(acked) - 1)
    if "atomic" in evidence.promises:
        start, batch = (int(evidence.delivered[name][rows[0]]) for name in ("start", "batch"))
        evidence.truth["TORN", start, batch] = evidence.truth["TORN", start + 50, batch] = 1
    evidence.set(evidence.delivered, "start", moved, evidence.delivered["start"][moved] + 50)
    return True


@damage
def tear_a_batch_that_was_not_reported(evidence: Evidence, rng: np.random.Generator) -> bool:
    """The driver died between the batch and its report; its range is that between its neighbours."""
    inner = [line["batch"] for line in evidence.progress[1:-1]]
    if not inner or (evidence.delivered["batch"] < 0).all():
        return False
    batch = int(rng.choice(inner))
    records = _delivered_once(evidence, np.flatnonzero(evidence.delivered["batch"] == batch))
    if not len(records):
        return False
    evidence.progress = [line for line in evidence.progress if line["batch"] != batch]
    evidence.lose([int(rng.choice(records))])
    return True


# --- commits ------------------------------------------------------------------------------------------------------------------------

CAREFUL = frozenset({"at-least-once", "exactly-once"})


def covered(evidence: Evidence, records: np.ndarray) -> np.ndarray:
    """Those of these records that a micro-batch of their own start, or of a later one, was reported to have passed over."""
    sent, delivered = evidence.sent, evidence.delivered
    start = {int(i): int(s) for i, s in zip(evidence.ids, delivered["start"], strict=True)}
    found = []
    for record in records:
        name, offset, own = str(sent["partition"][record]), sent["offset"][record], start[int(evidence.sent_ids[record])]
        if any(line["until"].get(name, 0) > offset and line["start"] >= own for line in evidence.progress):
            found.append(int(record))
    return np.array(found, int)


@damage
def output_after_its_commit(evidence: Evidence, rng: np.random.Generator) -> bool:
    if evidence.guarantee not in CAREFUL:
        return False
    records = covered(evidence, some(rng, evidence.once(), 10))
    if not len(records):
        return False
    evidence.set(evidence.delivered, "delivered_at", evidence.rows_of(records), int(evidence.delivered["delivered_at"].max()) + 3_600_000)
    evidence.must("OFFSET_AHEAD", *records)
    return True


@damage
def a_batch_after_its_commit(evidence: Evidence, rng: np.random.Generator) -> bool:
    if evidence.guarantee not in CAREFUL:
        return False
    records = covered(evidence, _of_batch_records(evidence, rng))
    if not len(records):
        return False
    evidence.set(evidence.delivered, "delivered_at", evidence.rows_of(records), int(evidence.delivered["delivered_at"].max()) + 3_600_000)
    evidence.must("OFFSET_AHEAD", *records)
    return True


@damage
def a_commit_before_any_output(evidence: Evidence, rng: np.random.Generator) -> bool:
    """The first micro-batch is reported before all that it wrote."""
    if evidence.guarantee not in CAREFUL or not evidence.progress:
        return False
    line = evidence.progress[0]
    sent, once = evidence.sent, evidence.once()
    ends = np.array([line["until"].get(str(partition), 0) for partition in sent["partition"][once]])
    records = once[(sent["offset"][once] < ends) & (sent["offset"][once] >= 0)]
    own = evidence.delivered["start"][evidence.rows_of(records)]
    if not len(records) or (own > line["start"]).any():
        return False
    line["committed_at"] = stamp(int(evidence.delivered["delivered_at"].min()) - 10)
    evidence.must("OFFSET_AHEAD", *(int(record) for record in records))
    return True


@damage
def a_commit_that_reaches_one_too_far(evidence: Evidence, rng: np.random.Generator) -> bool:
    """A micro-batch is reported to have passed over the first record of the next one, too."""
    if evidence.guarantee not in CAREFUL or len(evidence.progress) < 3:
        return False
    line = evidence.progress[int(rng.integers(0, len(evidence.progress) - 1))]
    sent, once, write_set = evidence.sent, evidence.once(), evidence.delivered["batch"] == line["batch"]
    name = str(rng.choice(list(line["until"]))) if line["until"] else ""
    found = once[(sent["partition"][once].astype(str) == name) & (sent["offset"][once] == line["until"].get(name, -1))]
    if len(found) != 1 or [each["batch"] for each in evidence.progress].count(line["batch"]) > 1:
        return False
    row = _row(evidence, int(found[0]))
    if evidence.delivered["delivered_at"][row] <= milliseconds(line["committed_at"]) or evidence.delivered["start"][row] > line["start"]:
        return False
    line["until"][name] += 1
    evidence.must("OFFSET_AHEAD", int(found[0]))
    if "atomic" in evidence.promises:
        for start in np.unique(evidence.delivered["start"][write_set]):
            evidence.truth["TORN", int(start), line["batch"]] = 1
    return True


# --- evidence that must not be judged -----------------------------------------------------------------------------------------------


@damage
def an_identity_that_was_sent_twice(evidence: Evidence, rng: np.random.Generator) -> bool:
    row = int(rng.integers(0, len(evidence.sent_ids)))
    evidence.sent = {name: np.concatenate([column, column[row : row + 1]]) for name, column in evidence.sent.items()}
    evidence.spoilt = "sent one identity twice"
    return True


@damage
def a_send_without_identity(evidence: Evidence, rng: np.random.Generator) -> bool:
    column = str(rng.choice(["producer", "sequence"]))
    evidence.set(evidence.sent, column, int(rng.integers(0, len(evidence.sent_ids))), -1)
    evidence.spoilt = "without producer or sequence"
    return True


@damage
def a_delivery_without_a_time(evidence: Evidence, rng: np.random.Generator) -> bool:
    if not len(evidence.ids):
        return False
    evidence.set(evidence.delivered, "delivered_at", int(rng.integers(0, len(evidence.ids))), -1)
    evidence.spoilt = "without delivered_at"
    return True


# --- what is missing while the drain has not reached the end is not known to be lost ---------------------------------------------------


@damage
def drop_before_the_end_was_reached(evidence: Evidence, rng: np.random.Generator) -> bool:
    record = _any(evidence, rng)
    if record is None:
        return False
    evidence.lose([record])
    evidence.complete = False
    return True
