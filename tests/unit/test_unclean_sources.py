"""Sources that are not clean: what the source does wrong is not laid to the job, and what the job does wrong is not excused by it.

Each rule is written down in docs/verdicts.md.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from streamproof.evidence import histories as history
from streamproof.evidence import identity, manifest
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.outcome import Outcome
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.matching import match
from streamproof.verdict.checks.order import reordered
from streamproof.verdict.checks.records import check
from streamproof.verdict.guarantee import Promise
from streamproof.verdict.judge import judge
from tests.support.histories import BEGUN, SPEC, Copy, Histories, Record, Story, at, clean

EXACT = replace(SPEC, promises=frozenset({Promise.ATOMIC, Promise.ORDERED}))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


# --- sent twice -----------------------------------------------------------------------------------------------------------------------


def _sent_twice() -> Story:
    """The last three events are sent a second time, by the producer behind the first, and delivered."""
    story = Story()
    for number in range(3):
        story.histories.sent.append(Record(1, 57 + number, number, 20))
        story.histories.delivered.append(Copy(1, 57 + number, story.histories.sent[-1].crc, number, 20, batch=3))
    for name in ("0", "1", "2"):
        story.progress[3]["until"][name] = 21
    return story


def test_an_event_that_was_sent_twice_is_due_twice(tmp_path: Path) -> None:
    found = judge(_sent_twice().write(tmp_path / "run"), EXACT).verdict.to_json()
    assert (found["outcome"], found["sent"]["acked"]) == ("PASSED", 63)


def test_a_job_that_takes_the_second_send_for_a_repetition_loses_it(tmp_path: Path) -> None:
    story = _sent_twice()
    story.histories.drop([(1, 58)])
    found = judge(story.write(tmp_path / "run"), SPEC).verdict.to_json()
    assert found["reason"] == "two_phase_commit broke exactly-once: 1 LOST"


def test_a_job_that_delivers_one_of_the_two_again_doubles_it(tmp_path: Path) -> None:
    story = _sent_twice()
    story.histories.double([(1, 58)])
    found = judge(story.write(tmp_path / "run"), SPEC).verdict.to_json()
    assert found["reason"] == "two_phase_commit broke exactly-once: 1 DUPLICATED"


def test_one_identity_that_was_sent_twice_cannot_be_judged(tmp_path: Path) -> None:
    story = Story()
    story.histories.sent.append(replace(story.histories.sent[7], offset=99))
    with pytest.raises(EvidenceError, match=r"sent one identity twice \(record 0/7"):
        judge(story.write(tmp_path / "run"), SPEC)


# --- late, and out of order -------------------------------------------------------------------------------------------------------------


def test_a_late_event_has_the_place_that_the_source_gave_it() -> None:
    """Sequences count what the producer meant to send; the broker's offsets say in which order it came, and that is what is promised."""
    histories = clean(10, partitions=1)
    histories.sent = [replace(record, offset=9 - (record.offset or 0)) for record in histories.sent]
    histories.delivered = [replace(copy, offset=9 - copy.offset) for copy in histories.delivered]
    assert reordered(match(*histories.columns()), np.zeros(10, np.int64)) == []


def test_a_job_that_sorts_late_events_in_is_out_of_order() -> None:
    histories = clean(10, partitions=1)
    histories.sent = [replace(record, offset={3: 4, 4: 3}.get(record.sequence, record.offset)) for record in histories.sent]
    assert [finding.sequence for finding in reordered(match(*histories.columns()), np.zeros(10, np.int64))] == [4]


# --- tombstones and empty values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sent", "delivered", "right"), [(0, 0, True), (1, 0, False), (0, 1, False)])
def test_an_empty_payload_is_a_record_like_any_other(folder: RunFolder, sent: int, delivered: int, right: bool) -> None:
    """Its checksum is 0, which is not the null of a record that contradicts itself."""
    found = identity.decode(identity.encode(0, 3, b""))
    assert found is not None
    assert (found.crc, found.intact) == (0, True)
    rows = [history.SentRow(0, 3, 0, 0, "k", sent, BEGUN, Outcome.ACKED)]
    history.write_sent(folder.sent / "00000.parquet", rows)
    Histories(delivered=[Copy(0, 3, delivered, 0, 0)]).write(RunFolder.create(folder.path / "other"))
    (folder.path / "other" / "delivered" / "00000.parquet").rename(folder.delivered / "00000.parquet")
    assert (check(history.read_sent(folder), history.read_delivered(folder)).findings == ()) is right


@pytest.mark.parametrize("value", [None, b"", b"{}"])
def test_a_tombstone_or_a_value_of_nobodys_is_corrupted_and_no_copy(value: bytes | None) -> None:
    assert identity.decode(value) is None
    histories = clean(5)
    histories.change((0, 3), producer=None, sequence=None, crc=None)
    assert histories.anomalies() == {Anomaly.LOST: [(0, 3)], Anomaly.CORRUPTED: [(None, None)]}


# --- keys -----------------------------------------------------------------------------------------------------------------------------


def test_a_null_key_is_no_key_and_an_empty_one_is(folder: RunFolder) -> None:
    clean(6).write(folder)
    path = folder.sent / "00000.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index("key")
    pq.write_table(table.set_column(at, table.schema.field(at), [[None, "", "a", None, "", "a"]]), path)
    keys = history.read_evidence(folder).keys
    assert (keys < 0).tolist() == [True, False, False, True, False, False]
    assert keys[1] == keys[4] != keys[2] == keys[5]


# --- expired records --------------------------------------------------------------------------------------------------------------------


def test_records_that_expired_after_they_were_delivered_change_nothing(tmp_path: Path) -> None:
    story = Story()
    story.events.insert(6, _expired({"0": 5, "1": 5, "2": 5}, 5.6))
    assert judge(story.write(tmp_path / "run"), EXACT).verdict.to_json()["outcome"] == "PASSED"


def test_records_that_expired_before_they_were_read_are_lost(tmp_path: Path) -> None:
    """The broker had acknowledged them: whoever asked for them to be kept no longer was wrong, and the run says so."""
    story = Story()
    story.histories.drop([(0, number) for number in range(45, 60)])
    all_of_them = {"0": 20, "1": 20, "2": 20}
    story.progress[3] |= {"from": all_of_them, "until": all_of_them}
    story.events.insert(6, _expired(all_of_them, 9.5))
    judgement = judge(story.write(tmp_path / "run"), SPEC)
    assert judgement.verdict.to_json()["reason"] == "two_phase_commit broke exactly-once: 15 LOST"
    blame = judgement.table.to_pylist()[0]["blame"]
    assert blame.endswith("went on behind it; the source had deleted it before it was delivered (expire_records-1)")


def _expired(below: dict[str, int], seconds: float) -> dict[str, object]:
    return {"at": at(seconds), "event": "injection_injected", "injection": "expire_records-1", "target": {"below": below}}


# --- sends that nobody knows of ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("copies", "outcome"), [(0, "PASSED"), (1, "PASSED"), (2, "FAILED")])
def test_a_send_of_which_nobody_knows_may_be_there_once_or_not(tmp_path: Path, copies: int, outcome: str) -> None:
    story = Story()
    story.histories.settle([(0, 30)], Outcome.INDETERMINATE)
    if copies == 0:
        story.histories.drop([(0, 30)])
    if copies == 2:
        story.histories.double([(0, 30)])
    assert judge(story.write(tmp_path / "run"), EXACT).verdict.to_json()["outcome"] == outcome


@pytest.mark.parametrize("copies", [0, 1, 2])
def test_neither_may_one_whose_generator_was_killed_be_there_twice(tmp_path: Path, copies: int) -> None:
    story = Story()
    story.histories.sent = [record for record in story.histories.sent if record.id != (0, 30)]
    if copies == 0:
        story.histories.drop([(0, 30)])
    if copies == 2:
        story.histories.double([(0, 30)])
    folder = story.write(tmp_path / "run")
    folder.intents.write_text(json.dumps({"producer": 0, "first": 0, "count": 60}) + "\n")
    manifest.write(folder)
    found = judge(folder, SPEC).verdict.to_json()
    assert found["anomalies"]["DUPLICATED"] == (copies == 2)
    assert found["anomalies"]["PHANTOM"] == found["anomalies"]["LOST"] == 0
