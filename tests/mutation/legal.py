"""What may happen to a history without anything being wrong.

Each changes the evidence in place, and its truth where what a guarantee allows must be counted all the same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.mutation import due_otherwise, second_reading, times, versions
from tests.mutation.clean import MADE, make
from tests.mutation.damage import DAMAGES
from tests.mutation.evidence import INDETERMINATE, REJECTED, Evidence, milliseconds, stamp

Change = Callable[[Evidence, np.random.Generator], object]


def rows_in_any_order(evidence: Evidence, rng: np.random.Generator) -> None:
    for side in ("sent", "delivered"):
        columns = getattr(evidence, side)
        order = rng.permutation(len(columns["producer"]))
        setattr(evidence, side, {name: column[order] for name, column in columns.items()})


def several_files(evidence: Evidence, rng: np.random.Generator) -> None:
    evidence.cuts = int(rng.integers(2, 5))


def wide_gaps(evidence: Evidence, rng: np.random.Generator) -> None:
    """Aborted transactions and their markers take offsets."""
    gaps = np.cumsum(rng.integers(1, 50, int(evidence.delivered["offset"].max(initial=0)) + 1))
    evidence.delivered["offset"] = gaps[evidence.delivered["offset"]] if len(gaps) else evidence.delivered["offset"]


def _undecided(evidence: Evidence, rng: np.random.Generator) -> np.ndarray:
    """Some ACKED records, each delivered once, whose answer is now said to have been lost on its way."""
    once = evidence.once()
    return rng.choice(once, min(len(once), int(rng.integers(1, 10))), replace=False) if len(once) else once


def answers_that_were_lost(evidence: Evidence, rng: np.random.Generator) -> None:
    records = _undecided(evidence, rng)
    evidence.set(evidence.sent, "outcome", records, INDETERMINATE)
    evidence.set(evidence.sent, "offset", records, -1)
    _absent(evidence, records[rng.random(len(records)) < 0.5])


def a_generator_that_was_killed(evidence: Evidence, rng: np.random.Generator) -> None:
    """The intent was written down, the outcome was not; the record is there once, or not at all, and no checksum is known of it."""
    records = _undecided(evidence, rng)
    rows = evidence.rows_of(int(record) for record in records)
    evidence.set(evidence.delivered, "crc", rows, rng.integers(0, 1 << 32, len(rows)))
    _absent(evidence, records[rng.random(len(records)) < 0.5])
    evidence.unsettle(records)


def a_generator_that_was_killed_and_repeated(evidence: Evidence, rng: np.random.Generator) -> None:
    """What the first knew was written down but for its last few records; the next one went on behind them, as the next producer."""
    producer = int(evidence.sent["producer"].max())
    mine = evidence.sent["producer"] == producer
    if producer >= 0xFFFF or not mine.any() or evidence.intended_only():  # it would be another's intent
        return
    cut = int(rng.choice(evidence.sent["sequence"][mine]))
    few = int(rng.integers(1, max(len(evidence.sent_ids) // 40, 1) + 1))
    for side in (evidence.sent, evidence.delivered):
        later = np.flatnonzero((side["producer"] == producer) & (side["sequence"] >= cut + few))
        evidence.set(side, "producer", later, producer + 1)
    between = (evidence.sent["producer"] == producer) & (evidence.sent["sequence"] >= cut)
    records = np.flatnonzero(between)
    _absent(evidence, records[rng.random(len(records)) < 0.5])
    evidence.unsettle(records)


def a_fault_in_the_middle(evidence: Evidence, rng: np.random.Generator) -> None:
    evidence.injected_ms = int(np.median(evidence.delivered["delivered_at"])) if len(evidence.ids) else None


def _absent(evidence: Evidence, records: np.ndarray) -> None:
    mask = np.ones(len(evidence.ids), bool)
    mask[evidence.rows_of(int(record) for record in records)] = False
    evidence.keep(mask)


def sends_that_were_refused(evidence: Evidence, rng: np.random.Generator) -> None:
    records = _undecided(evidence, rng)
    _absent(evidence, records)
    evidence.set(evidence.sent, "outcome", records, REJECTED)
    evidence.set(evidence.sent, "offset", records, -1)


def no_keys_at_all(evidence: Evidence, rng: np.random.Generator) -> None:
    """Then there is no order either."""
    evidence.sent["key"] = np.full(len(evidence.sent_ids), -1)
    for number in np.unique(evidence.delivered["partition"]):
        here = np.flatnonzero(evidence.delivered["partition"] == number)
        evidence.set(evidence.delivered, "offset", here, rng.permutation(evidence.delivered["offset"][here]))


def sent_twice_by_the_source(evidence: Evidence, rng: np.random.Generator) -> None:
    """The same payloads under the same keys, each with an identity of its own; each is delivered like any other."""
    once = evidence.once()
    placed = evidence.sent["offset"][once] >= 0
    records = once[placed][-int(rng.integers(1, 15)) :]
    producer = int(evidence.sent["producer"].max()) + 1
    if not len(records) or producer > 0xFFFF or evidence.progress == []:
        return
    more = {name: column[records].copy() for name, column in evidence.sent.items()}
    more["producer"][:], more["sequence"][:] = producer, np.arange(len(records))
    line = evidence.progress[-1]
    rows = np.array([evidence.rows_of([int(record)])[0] for record in records])
    copies = {name: column[rows].copy() for name, column in evidence.delivered.items()}
    copies["producer"][:], copies["sequence"][:] = producer, np.arange(len(records))
    for number in np.unique(more["partition"]):
        here = np.flatnonzero(more["partition"] == number)
        end = max(int(evidence.sent["offset"][evidence.sent["partition"] == number].max()) + 1, line["until"].get(str(number), 0))
        more["offset"][here] = end + np.arange(len(here))
        line["until"][str(number)] = end + len(here)
    for number in np.unique(copies["partition"]):
        here = np.flatnonzero(copies["partition"] == number)
        here = here[np.lexsort((more["offset"][here], more["partition"][here]))]
        copies["offset"][here] = int(evidence.delivered["offset"].max()) + 1 + np.arange(len(here))
    copies["delivered_at"][:] = evidence.delivered["delivered_at"].max()
    if (evidence.delivered["batch"] >= 0).any():
        start = min(each["start"] for each in evidence.progress if each["batch"] == line["batch"])
        copies["batch"][:], copies["start"][:] = line["batch"], start
    evidence.sent = {name: np.concatenate([column, more[name]]) for name, column in evidence.sent.items()}
    evidence.delivered = {name: np.concatenate([column, copies[name]]) for name, column in evidence.delivered.items()}
    count = int((evidence.sent["producer"] == producer).sum())
    evidence.intents += [(producer, int(sequence), 1) for sequence in more["sequence"][:count]]


def a_batch_that_was_not_reported(evidence: Evidence, rng: np.random.Generator) -> None:
    if len(evidence.progress) > 4:
        del evidence.progress[int(rng.integers(2, len(evidence.progress) - 1))]


def a_batch_that_a_later_start_reports_again(evidence: Evidence, rng: np.random.Generator) -> None:
    """Its driver died before ``commits/N``; the replay found it done and wrote nothing."""
    at = int(rng.integers(0, len(evidence.progress)))
    line = evidence.progress[at]
    evidence.progress.insert(at + 1, {**line, "start": line["start"] + 1, "committed_at": stamp(milliseconds(line["committed_at"]) + 5)})


def payloads_that_are_equal(evidence: Evidence, rng: np.random.Generator) -> None:
    crc = int(rng.choice([0, 0xFFFF_FFFF, 12345]))
    for side in (evidence.sent, evidence.delivered):
        side["crc"] = np.full(len(side["crc"]), crc)


def records_that_expired(evidence: Evidence, rng: np.random.Generator) -> None:
    """What the job had committed is gone from the source. Neither history changes: what was read was delivered, and counts."""


def retries(evidence: Evidence, rng: np.random.Generator) -> None:
    """At-least-once: a task, a batch, the tail is written again, by another attempt or a later start."""
    for name in rng.choice(
        ["replay_a_batch_by_a_later_start", "replay_a_task_under_its_name", "double_by_a_second_attempt", "triple_one"], 2
    ):
        DAMAGES[str(name)](evidence, rng)
    DAMAGES["replay_the_tail_of_a_partition"](evidence, rng)


def losses(evidence: Evidence, rng: np.random.Generator) -> None:
    """At-most-once: a batch that was marked is not written, or in part."""
    for name in rng.choice(["drop_a_batch", "drop_a_task_of_a_batch", "drop_the_tail_of_a_partition", "drop_one"], 2):
        DAMAGES[str(name)](evidence, rng)


def another_order(evidence: Evidence, rng: np.random.Generator) -> None:
    """Nobody promised one."""
    for number in np.unique(evidence.delivered["partition"]):
        here = np.flatnonzero(evidence.delivered["partition"] == number)
        evidence.set(evidence.delivered, "offset", here, rng.permutation(evidence.delivered["offset"][here]))


def parts_by_several_starts(evidence: Evidence, rng: np.random.Generator) -> None:
    """Nobody promised whole batches."""
    DAMAGES["tear_a_batch_between_two_starts"](evidence, rng)


def output_long_after_its_commit(evidence: Evidence, rng: np.random.Generator) -> None:
    """At-most-once commits first."""
    evidence.delivered["delivered_at"] = evidence.delivered["delivered_at"] + 10_000


def nothing_acknowledged(evidence: Evidence, rng: np.random.Generator) -> None:
    """Nobody knows anything: no alarm, and no proof either."""
    evidence.sent["outcome"] = np.full(len(evidence.sent_ids), INDETERMINATE, dtype=object)
    evidence.sent["offset"] = np.full(len(evidence.sent_ids), -1)


def nothing_at_all(evidence: Evidence, rng: np.random.Generator) -> None:
    evidence.sent = {name: column[:0] for name, column in evidence.sent.items()}
    evidence.delivered = {name: column[:0] for name, column in evidence.delivered.items()}
    evidence.intents = []


ALWAYS: tuple[Change, ...] = (
    rows_in_any_order,
    several_files,
    wide_gaps,
    answers_that_were_lost,
    a_generator_that_was_killed,
    a_generator_that_was_killed_and_repeated,
    a_fault_in_the_middle,
    sends_that_were_refused,
    no_keys_at_all,
    sent_twice_by_the_source,
    a_batch_that_was_not_reported,
    a_batch_that_a_later_start_reports_again,
    payloads_that_are_equal,
    records_that_expired,
    *times.LEGAL,
    versions.rows_that_came_and_went,
    versions.files_that_are_written_anew,
)
RARELY: tuple[Change, ...] = (nothing_acknowledged, nothing_at_all)
WHERE: dict[str, tuple[Change, ...]] = {
    "at-least-once": (retries, another_order, parts_by_several_starts),
    "at-most-once": (losses, another_order, parts_by_several_starts, output_long_after_its_commit),
}


def history(rng: np.random.Generator) -> tuple[Evidence, list[str]]:
    """A legal history, and what happened in it."""
    evidence = make(rng, str(rng.choice(MADE)))
    special = WHERE.get(evidence.guarantee, ()) or (() if evidence.promises else (another_order, parts_by_several_starts))
    chosen: list[Change] = [change for change in special if rng.random() < 0.5]
    # Sends change their outcome before copies are counted again: what is there twice must have been decided then.
    general = [ALWAYS[int(number)] for number in rng.choice(len(ALWAYS), int(rng.integers(0, 4)), replace=False)]
    general.sort(key=lambda change: change is rows_in_any_order)
    rare = [RARELY[int(rng.integers(0, len(RARELY)))]] if rng.random() < 0.02 else []
    for change in rare or [*general, *chosen]:
        change(evidence, rng)
    done = [change.__name__ for change in rare or [*general, *chosen]]
    if rng.random() < 0.1 and due_otherwise.as_often_as_due(evidence, rng):
        done.append("as_often_as_due")
    elif rng.random() < 0.1:
        second_reading.an_output_that_was_read_twice(evidence, rng)
        done.append("an_output_that_was_read_twice")
    return evidence, done or ["clean"]
