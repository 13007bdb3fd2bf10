"""The checker names every anomalous record and no other: each test starts from a clean history and damages one thing."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamproof.evidence.folder import EvidenceError
from streamproof.evidence.identity import MAX_PRODUCER, MAX_SEQUENCE
from streamproof.evidence.outcome import Outcome
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.records import check
from streamproof.verdict.guarantee import Guarantee, Promise, forbidden
from tests.support.histories import Copy, Histories, Id, Record, clean, crc_of

LOST, DUPLICATED, PHANTOM, CORRUPTED = Anomaly.LOST, Anomaly.DUPLICATED, Anomaly.PHANTOM, Anomaly.CORRUPTED

CLEAN = st.builds(
    lambda counts, partitions: clean(*counts, partitions=partitions),
    st.lists(st.integers(0, 40), min_size=1, max_size=4),
    st.integers(1, 6),
)


@st.composite
def clean_and_some(draw: st.DrawFn) -> tuple[Histories, set[Id]]:
    """A clean history, and the ids of some of its records."""
    histories = draw(CLEAN)
    ids = [row.id for row in histories.sent]
    return histories, draw(st.sets(st.sampled_from(ids))) if ids else set()


def expected(anomaly: Anomaly, ids: set[Id]) -> dict[Anomaly, list[Id]]:
    return {anomaly: sorted(ids, key=str)} if ids else {}


# --- properties ---------------------------------------------------------------------------------------------------------------------


@given(CLEAN)
def test_a_clean_history_has_no_finding(histories: Histories) -> None:
    assert histories.check().findings == ()


@given(clean_and_some())
def test_acknowledged_records_that_are_dropped_are_exactly_those_lost(damage: tuple[Histories, set[Id]]) -> None:
    histories, ids = damage
    histories.drop(ids)
    assert histories.anomalies() == expected(LOST, ids)


@given(clean_and_some(), st.integers(1, 3))
def test_records_that_are_doubled_are_exactly_those_duplicated(damage: tuple[Histories, set[Id]], times: int) -> None:
    histories, ids = damage
    histories.double(ids, times)
    assert histories.anomalies() == expected(DUPLICATED, ids)
    assert {finding.copies for finding in histories.check().findings} <= {1 + times}


@given(clean_and_some(), st.randoms(use_true_random=False))
def test_an_indeterminate_record_may_be_absent_or_there_once(damage: tuple[Histories, set[Id]], rng: random.Random) -> None:
    histories, ids = damage
    histories.settle(ids, Outcome.INDETERMINATE)
    histories.drop({each for each in ids if rng.random() < 0.5})
    assert histories.anomalies() == {}


@given(clean_and_some())
def test_an_indeterminate_record_may_not_be_there_twice(damage: tuple[Histories, set[Id]]) -> None:
    histories, ids = damage
    histories.settle(ids, Outcome.INDETERMINATE)
    histories.double(ids)
    assert histories.anomalies() == expected(DUPLICATED, ids)


@given(clean_and_some(), st.integers(0, 2))
def test_a_rejected_record_that_is_delivered_is_a_phantom_however_often(damage: tuple[Histories, set[Id]], times: int) -> None:
    histories, ids = damage
    histories.settle(ids, Outcome.REJECTED)
    histories.double(ids, times)
    assert histories.anomalies() == expected(PHANTOM, ids)


@given(clean_and_some())
def test_a_rejected_record_that_is_not_delivered_is_right(damage: tuple[Histories, set[Id]]) -> None:
    histories, ids = damage
    histories.settle(ids, Outcome.REJECTED)
    histories.drop(ids)
    assert histories.anomalies() == {}


@given(clean_and_some())
def test_a_delivered_record_that_nobody_sent_is_a_phantom(damage: tuple[Histories, set[Id]]) -> None:
    histories, ids = damage
    histories.sent = [row for row in histories.sent if row.id not in ids]
    assert histories.anomalies() == expected(PHANTOM, ids)


@given(clean_and_some())
def test_a_wrong_checksum_is_corrupted_and_still_counts_as_a_copy(damage: tuple[Histories, set[Id]]) -> None:
    histories, ids = damage
    for each in ids:
        histories.change(each, crc=crc_of(*each) ^ 1)
    assert histories.anomalies() == expected(CORRUPTED, ids)
    assert sum(count.delivered for count in histories.check().partitions) == len(histories.sent)


@given(clean_and_some())
def test_a_record_that_contradicts_its_own_checksum_is_corrupted(damage: tuple[Histories, set[Id]]) -> None:
    histories, ids = damage
    for each in ids:
        histories.change(each, crc=None)
    assert histories.anomalies() == expected(CORRUPTED, ids)


@given(clean_and_some())
def test_a_record_without_identity_is_corrupted_and_nobodys_copy(damage: tuple[Histories, set[Id]]) -> None:
    histories, ids = damage
    for each in ids:
        histories.change(each, producer=None, sequence=None, crc=None)
    assert histories.anomalies() == expected(LOST, ids) | ({CORRUPTED: [(None, None)] * len(ids)} if ids else {})


@given(clean_and_some(), clean_and_some(), st.integers(0, 2**32))
def test_the_order_of_rows_never_matters(damage: tuple[Histories, set[Id]], more: tuple[Histories, set[Id]], seed: int) -> None:
    histories, ids = damage
    histories.drop(more[1])
    histories.double(ids)
    before = histories.anomalies()
    histories.shuffle(seed)
    assert histories.anomalies() == before


@given(clean_and_some(), st.integers(0, 2**32))
def test_gaps_between_offsets_never_matter(damage: tuple[Histories, set[Id]], seed: int) -> None:
    histories, ids = damage
    histories.drop(ids)
    before, rng, end = histories.anomalies(), random.Random(seed), 0
    for number, copy in enumerate(histories.delivered):
        end += rng.randrange(1, 1000)
        histories.delivered[number] = replace(copy, offset=end)
    assert histories.anomalies() == before


@given(clean_and_some(), clean_and_some(), clean_and_some())
def test_the_accounts_of_the_partitions_add_up(
    lost: tuple[Histories, set[Id]], rejected: tuple[Histories, set[Id]], unknown: tuple[Histories, set[Id]]
) -> None:
    histories, ids = lost
    histories.settle(rejected[1], Outcome.REJECTED)
    histories.settle(unknown[1], Outcome.INDETERMINATE)
    histories.drop(ids)
    histories.double(unknown[1])
    found = histories.check()
    counts = found.counts()
    total = (
        {name: sum(getattr(count, name) for count in found.partitions) for name in vars(found.partitions[0])} if found.partitions else {}
    )
    assert total.get("acked", 0) == found.acked
    assert total.get("rejected", 0) == found.rejected
    assert total.get("indeterminate", 0) == found.indeterminate
    assert total.get("lost", 0) == counts[LOST]
    assert total.get("duplicated", 0) == counts[DUPLICATED]
    assert total.get("delivered", 0) == found.delivered
    assert found.acked + found.rejected + found.indeterminate == len(histories.sent)


# --- examples -----------------------------------------------------------------------------------------------------------------------


def test_a_finding_names_its_send_and_its_copies_by_row() -> None:
    histories = clean(10)
    histories.double([(0, 4)])
    (finding,) = histories.check().findings
    assert histories.sent[finding.sent or 0].id == (0, 4)
    assert [histories.delivered[row].id for row in finding.delivered] == [(0, 4), (0, 4)]


def test_a_lost_record_counts_for_its_source_partition() -> None:
    histories = clean(9, partitions=3)
    histories.drop([(0, 4)])
    assert [(count.partition, count.acked, count.delivered, count.lost) for count in histories.check().partitions] == [
        (0, 3, 3, 0),
        (1, 3, 2, 1),
        (2, 3, 3, 0),
    ]


def test_the_same_sequence_of_two_producers_is_two_records() -> None:
    histories = clean(5, 5)
    histories.drop([(1, 3)])
    assert histories.anomalies() == {LOST: [(1, 3)]}


def test_a_record_cannot_stand_in_for_another() -> None:
    histories = clean(5)
    histories.drop([(0, 3)])
    histories.double([(0, 2)])
    assert histories.anomalies() == {LOST: [(0, 3)], DUPLICATED: [(0, 2)]}


def test_one_damaged_copy_of_two_is_duplicated_and_corrupted() -> None:
    histories = clean(5)
    histories.delivered.append(Copy(0, 2, crc_of(0, 2) ^ 1, 0, 99))
    assert histories.anomalies() == {DUPLICATED: [(0, 2)], CORRUPTED: [(0, 2)]}
    corrupted = next(finding for finding in histories.check().findings if finding.anomaly is CORRUPTED)
    assert [histories.delivered[row].offset for row in corrupted.delivered] == [99]


def test_a_stranger_that_comes_twice_is_one_phantom_with_two_copies() -> None:
    histories = clean(5)
    histories.delivered += [Copy(7, 7, 1, 0, 98), Copy(7, 7, 1, 0, 99)]
    (finding,) = histories.check().findings
    assert (finding.anomaly, finding.producer, finding.sequence, finding.copies, finding.sent) == (PHANTOM, 7, 7, 2, None)


def test_the_widest_identities_are_told_apart() -> None:
    ids = [(0, 0), (0, MAX_SEQUENCE), (1, 0), (0x7FFF, MAX_SEQUENCE), (0x8000, 0), (MAX_PRODUCER, 0), (MAX_PRODUCER, MAX_SEQUENCE)]
    sent = [Record(producer, sequence, 0, number) for number, (producer, sequence) in enumerate(ids)]
    histories = Histories(sent, [Copy(row.producer, row.sequence, row.crc, 0, 0) for row in sent])
    assert histories.anomalies() == {}
    for each in ids:
        damaged = Histories(sent, list(histories.delivered))
        damaged.drop([each])
        assert damaged.anomalies() == {LOST: [each]}


def test_nothing_sent_and_nothing_delivered_is_clean() -> None:
    found = Histories().check()
    assert (found.findings, found.partitions, found.acked, found.delivered) == ((), (), 0, 0)


def test_nothing_delivered_at_all_loses_everything_acknowledged() -> None:
    histories = clean(7)
    histories.delivered = []
    assert histories.check().counts() == {LOST: 7, DUPLICATED: 0, PHANTOM: 0, CORRUPTED: 0}


def test_any_checksum_fits_a_send_that_was_never_settled() -> None:
    sent, delivered = clean(5).columns()
    assert check(replace(sent, crc=np.full(5, -1), acked=np.zeros(5, bool)), delivered).findings == ()


def test_an_identity_that_was_sent_twice_is_damaged_evidence() -> None:
    histories = clean(5)
    histories.sent.append(replace(histories.sent[0], offset=9))
    with pytest.raises(EvidenceError, match=r"sent one identity twice \(record "):
        histories.check()


def test_checking_changes_neither_history() -> None:
    histories = clean(20)
    histories.drop([(0, 3)])
    histories.double([(0, 4)])
    columns = histories.columns()
    copies = [{name: getattr(side, name).copy() for name in side.__dataclass_fields__ if name != "_"} for side in columns]
    check(*columns)
    for side, copy in zip(columns, copies, strict=True):
        assert all((getattr(side, name) == column).all() for name, column in copy.items())


def test_each_guarantee_forbids_what_its_name_says() -> None:
    assert Guarantee.AT_MOST_ONCE.forbidden == {DUPLICATED, PHANTOM, CORRUPTED}
    assert Guarantee.AT_LEAST_ONCE.forbidden == {LOST, PHANTOM, CORRUPTED, Anomaly.OFFSET_AHEAD}
    assert Guarantee.EXACTLY_ONCE.forbidden == {LOST, DUPLICATED, PHANTOM, CORRUPTED, Anomaly.OFFSET_AHEAD}
    assert forbidden(Guarantee.AT_MOST_ONCE, [Promise.ATOMIC, Promise.ORDERED]) == {
        DUPLICATED,
        PHANTOM,
        CORRUPTED,
        Anomaly.TORN,
        Anomaly.REORDERED,
    }
