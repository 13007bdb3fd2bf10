"""Evidence must add up: where two pieces of it count differently, or a file is not what the drain left, no verdict is given."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamproof.evidence import manifest
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.outcome import Outcome
from streamproof.verdict.checks import accounts
from streamproof.verdict.guarantee import Guarantee
from streamproof.verdict.judge import RunSpec, judge
from tests.support.histories import INJECTION, SPEC, Story, at

AT_MOST_ONCE = replace(SPEC, strategy="at_most_once", guarantee=Guarantee.AT_MOST_ONCE)
AT_LEAST_ONCE = replace(SPEC, strategy="checkpoint", guarantee=Guarantee.AT_LEAST_ONCE)


def _load_finished(story: Story, acked: int = 60, rejected: int = 0, indeterminate: int = 0) -> Story:
    counts = {"acked": acked, "rejected": rejected, "indeterminate": indeterminate}
    story.events.append({"at": at(11), "event": "load_finished", **counts})
    return story


def _refused(folder: RunFolder, *said: str, spec: RunSpec = SPEC) -> None:
    with pytest.raises(EvidenceError) as error:
        judge(folder, spec)
    for each in said:
        assert each in str(error.value), error.value


# --- the load -----------------------------------------------------------------------------------------------------------------------


def test_counts_that_agree_are_no_obstacle(tmp_path: Path) -> None:
    folder = _load_finished(Story()).write(tmp_path / "run")
    folder.intents.write_text('{"producer":0,"first":0,"count":60}\n')
    manifest.write(folder)
    assert judge(folder, replace(SPEC, records=60, faults=("kill_executor",))).verdict.outcome == "PASSED"


def test_half_of_both_histories_is_not_what_the_load_counted(tmp_path: Path) -> None:
    story = _load_finished(Story())
    story.histories.sent, story.histories.delivered = story.histories.sent[::2], story.histories.delivered[::2]
    _refused(story.write(tmp_path / "run"), "journal.jsonl says that 60 records are ACKED", "sent holds 30")


@pytest.mark.parametrize(("outcome", "counted"), [(Outcome.REJECTED, {"acked": 59}), (Outcome.INDETERMINATE, {"acked": 59})])
def test_each_outcome_is_counted(tmp_path: Path, outcome: Outcome, counted: dict[str, int]) -> None:
    story = _load_finished(Story(), **counted)
    story.histories.settle([(0, 5)], outcome)
    _refused(story.write(tmp_path / "run"), f"says that 0 records are {outcome}", "holds 1")


def test_fewer_records_than_the_experiment_has_are_named(tmp_path: Path) -> None:
    folder = Story().write(tmp_path / "run")
    folder.intents.write_text('{"producer":0,"first":0,"count":40}\n{"producer":1,"first":30,"count":20}\n')
    manifest.write(folder)
    _refused(folder, "experiment.yaml has 60 records", "intents.jsonl has 50", spec=replace(SPEC, records=60))


def test_an_outcome_that_is_none_is_damaged_evidence(tmp_path: Path) -> None:
    folder = Story().write(tmp_path / "run")
    path = folder.sent / "00000.parquet"
    table = pq.read_table(path)
    words = ["LOST?" if number == 7 else word for number, word in enumerate(table["outcome"].to_pylist())]
    pq.write_table(table.set_column(table.schema.get_field_index("outcome"), "outcome", pa.array(words)), path)
    manifest.write(folder)
    _refused(folder, "the outcome 'LOST?' is none of ACKED, REJECTED, INDETERMINATE")


def test_two_acked_records_at_one_place_of_the_source_are_damaged_evidence(tmp_path: Path) -> None:
    story = Story()
    story.histories.sent[3] = replace(story.histories.sent[3], partition=0, offset=0)
    _refused(story.write(tmp_path / "run"), "sent holds two records at one place: partition 0, offset 0")


# --- the drain ----------------------------------------------------------------------------------------------------------------------


def test_a_drain_that_counted_other_records_is_named_with_both_numbers(tmp_path: Path) -> None:
    story = Story(drain={"complete": True, "reason": None, "records": 999_999})
    _refused(story.write(tmp_path / "run"), "drain.json says 999999 records", "delivered holds 60")


def test_a_record_behind_the_end_that_the_drain_read_to_is_damaged_evidence(tmp_path: Path) -> None:
    story = Story(drain={"complete": True, "reason": None, "end_offsets": {"0": 20, "1": 19, "2": 20}})
    _refused(story.write(tmp_path / "run"), "partition 1 ends at 19", "has an offset 19 of it")


@pytest.mark.parametrize("spec", [SPEC, AT_LEAST_ONCE])
def test_a_delivered_file_that_is_there_twice_accuses_nobody(tmp_path: Path, spec: RunSpec) -> None:
    folder = Story(drain={"complete": True, "reason": None, "records": 120}).write(tmp_path / "run")
    shutil.copy(folder.delivered / "00000.parquet", folder.delivered / "00001.parquet")
    _refused(folder, "00001.parquet is damaged evidence: manifest.json expects no such file, found 60 rows", spec=spec)
    manifest.write(folder)
    _refused(folder, "delivered holds two records at one place", spec=spec)


# --- the schedule -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("planned", "faults", "said"), [((), ("kill_executor",), "1 times, the schedule 0"), ((INJECTION,), (), "0 times")]
)
def test_a_schedule_with_other_faults_than_the_experiment_is_damaged_evidence(
    tmp_path: Path, planned: tuple[str, ...], faults: tuple[str, ...], said: str
) -> None:
    _refused(Story().write(tmp_path / "run"), "schedule.json", said, spec=replace(SPEC, planned=planned, faults=faults))


# --- the manifest -------------------------------------------------------------------------------------------------------------------


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [Path.unlink, _cut, _flip])
@pytest.mark.parametrize("name", ["sent/00000.parquet", "delivered/00000.parquet", "delivered/drain.json", "source.json", "progress.jsonl"])
def test_a_file_that_is_not_what_the_drain_left_is_named(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    folder = Story().write(tmp_path / "run")
    damage(folder.path / name)
    _refused(folder, f"{folder.path / name} is damaged evidence: manifest.json expects", "found", spec=AT_MOST_ONCE)


def test_a_file_that_was_added_is_named(tmp_path: Path) -> None:
    folder = Story().write(tmp_path / "run")
    folder.batches.write_text("{}\n")
    _refused(folder, "batches.jsonl is damaged evidence: manifest.json expects no such file, found 1 rows in 3 bytes")


def test_a_manifest_without_a_file_that_every_drain_writes_is_not_enough(tmp_path: Path) -> None:
    folder = Story().write(tmp_path / "run")
    folder.source.unlink()
    with pytest.raises(EvidenceError, match=r"source\.json is missing"):
        manifest.write(folder)
    entries = json.loads(folder.manifest.read_text())
    del entries["files"]["source.json"]
    folder.manifest.write_text(json.dumps(entries))
    _refused(folder, "source.json is damaged evidence: manifest.json expects no such file, found no such file", spec=AT_MOST_ONCE)


def test_a_run_without_a_manifest_cannot_be_judged_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = Story().write(tmp_path / "run")
    folder.manifest.unlink()
    _refused(folder, "manifest.json is missing", "Run its experiment again: `streamproof run`")


@pytest.mark.parametrize("text", ["{}", "[]", '{"files": {"a": 1}}', "no JSON"])
def test_a_manifest_that_is_damaged_is_named(tmp_path: Path, text: str) -> None:
    folder = Story().write(tmp_path / "run")
    folder.manifest.write_text(text)
    _refused(folder, "manifest.json is")


def test_what_changes_after_the_drain_is_not_in_the_manifest(tmp_path: Path) -> None:
    folder = Story().write(tmp_path / "run")
    before = judge(folder, SPEC).verdict
    before.write(folder)
    with folder.journal.path.open("a") as file:
        file.write(json.dumps({"at": at(14), "event": "stage_started", "stage": "verify", "pid": 1}) + "\n")
    assert judge(folder, SPEC).verdict == before


# --- places -------------------------------------------------------------------------------------------------------------------------


@given(
    places=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40)), max_size=60),
    piece=st.integers(1, 9),
    at_once=st.integers(1, 20),
    wide=st.sampled_from([1, 1 << 30]),
)
def test_a_place_that_is_there_twice_is_found_however_the_pieces_lie(
    places: list[tuple[int, int]], piece: int, at_once: int, wide: int
) -> None:
    pieces = [
        (np.array([one for one, _ in part], np.int64), np.array([other for _, other in part], np.int64) * wide)
        for part in (places[begin : begin + piece] for begin in range(0, len(places), piece))
    ]
    everything = [(int(one), int(other)) for partitions, offsets in pieces for one, other in zip(partitions, offsets, strict=True)]
    ascent = accounts._Ascent()
    for part in pieces:
        ascent.add(*part)
    assert ascent.rows == len(everything)
    assert ascent.highest == {one: max(other for each, other in everything if each == one) for one, _ in everything}
    twice = len(set(everything)) < len(everything)
    assert not (twice and ascent.ascending)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(EvidenceError, match="at one place") if twice else nullcontext():
        patch.setattr(accounts, "AT_ONCE", at_once)
        accounts._no_place_twice(Path("delivered"), ascent.rows, lambda: iter(pieces))
