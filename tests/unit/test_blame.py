"""Blame says where an anomalous record came from, which batches held it and what was broken then; it never guesses."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streamproof.evidence.journal import Event
from streamproof.evidence.outcome import Outcome
from streamproof.verdict.blame import NEARBY, Timeline
from streamproof.verdict.guarantee import Promise
from streamproof.verdict.judge import judge
from tests.support.histories import BEGUN, SPEC, Copy, Story, at, typed


def blames(story: Story, path: Path) -> list[str]:
    rows = judge(story.write(path / "run"), SPEC).table.to_pylist()
    return [row["blame"] for row in rows if row["row"] == "record"]


def test_a_lost_record_is_told_with_its_source_and_the_batch_that_read_it(tmp_path: Path) -> None:
    story = Story()
    story.histories.drop([(0, 22)])
    assert blames(story, tmp_path) == [
        "record 0/22 (source partition 1, offset 7) was acknowledged but never delivered; it was read by batch 1 of start 1"
    ]


def test_a_lost_record_whose_batch_was_decided_in_vain_is_told_so(tmp_path: Path) -> None:
    story = Story()
    story.histories.drop([(0, 22)])
    story.events.append({"event": "decision_lost", "at": at(40), "batch": 1, "start": 1, "transaction": "sp-x.1.abc", "error": "..."})
    assert blames(story, tmp_path)[0].endswith(
        "it was read by batch 1 of start 1; batch 1 was decided, and the broker had aborted its transactions (sp-x.1.abc)"
    )


def test_a_lost_record_that_no_batch_read_is_told_so(tmp_path: Path) -> None:
    story = Story()
    story.histories.drop([(0, 59)])
    story.progress = story.progress[:3]
    assert blames(story, tmp_path)[0].endswith("never delivered; no committed batch covers its offset")


def test_a_duplicate_names_the_batch_and_attempt_of_each_copy(tmp_path: Path) -> None:
    story = Story()
    original = next(copy for copy in story.histories.delivered if copy.id == (0, 3))
    story.histories.delivered.append(Copy(0, 3, original.crc, 0, 99, batch=0, attempt=2, start=2))
    (blame,) = blames(story, tmp_path)
    assert blame == (
        "record 0/3 (source partition 0, offset 1) was delivered 2 times: "
        "by batch 0 attempt 0 of start 1 (output 0/1), then by batch 0 attempt 2 of start 2 (output 0/99)"
    )


def test_a_copy_whose_strategy_says_nothing_is_named_by_its_place(tmp_path: Path) -> None:
    story = Story()
    story.histories.change((0, 3), batch=None, attempt=None, start=None)
    story.histories.double([(0, 3)])
    assert "delivered 2 times: output 0/1, then output 0/20" in blames(story, tmp_path)[0]


def test_many_copies_are_cut_short(tmp_path: Path) -> None:
    story = Story()
    story.histories.double([(0, 3)], times=9)
    blame = blames(story, tmp_path)[0]
    assert "was delivered 10 times" in blame
    assert blame.endswith("and 6 more")


def test_a_phantom_says_whether_it_was_refused_or_never_sent(tmp_path: Path) -> None:
    story = Story()
    story.histories.settle([(0, 3)], Outcome.REJECTED)
    story.histories.delivered.append(Copy(9, 9, 1, 0, 99))
    refused, unknown = blames(story, tmp_path)
    assert "record 0/3 (source partition 0) was delivered although its send was refused" in refused
    assert unknown == "record 9/9 was delivered although nobody sent it: by batch 0 attempt 0 of start 1 (output 0/99)"


def test_a_damaged_record_says_where_it_lies(tmp_path: Path) -> None:
    story = Story()
    story.histories.change((0, 3), crc=1)
    story.histories.delivered.append(Copy(None, None, None, 2, 99, None, None, None))
    damaged, unreadable = blames(story, tmp_path)
    assert damaged.startswith("record 0/3 (source partition 0, offset 1) was delivered damaged: by batch 0")
    assert unreadable == "a record without a readable identity was delivered damaged: output 2/99"


# --- the timeline -------------------------------------------------------------------------------------------------------------------


def _line(batch: int, begin: dict[str, int], until: dict[str, int], start: int = 1) -> dict[str, Any]:
    return {"batch": batch, "start": start, "from": begin, "until": until}


def test_a_batch_holds_its_begin_and_not_its_end() -> None:
    timeline = Timeline([_line(0, {"0": 0}, {"0": 5}), _line(1, {"0": 5}, {"0": 9})], [])
    assert [timeline.batches(0, offset) for offset in (0, 4, 5, 8, 9)] == [
        ["batch 0 of start 1"],
        ["batch 0 of start 1"],
        ["batch 1 of start 1"],
        ["batch 1 of start 1"],
        [],
    ]


def test_a_replayed_batch_is_named_twice() -> None:
    timeline = Timeline([_line(0, {"0": 0}, {"0": 5}), _line(0, {"0": 0}, {"0": 5}, start=2)], [])
    assert timeline.batches(0, 3) == ["batch 0 of start 1", "batch 0 of start 2"]


def test_a_first_batch_that_does_not_say_where_it_began_starts_at_the_earliest_or_where_the_last_start_ended() -> None:
    timeline = Timeline([_line(0, {}, {"0": 5}), _line(0, {}, {"0": 9}, start=2)], [])
    assert timeline.batches(0, 3) == ["batch 0 of start 1"]
    assert timeline.batches(0, 7) == ["batch 0 of start 2"]


def test_a_partition_that_a_batch_does_not_know_is_in_none() -> None:
    assert Timeline([_line(0, {"0": 0}, {"0": 5})], []).batches(1, 0) == []


def _event(name: str, seconds: float, **fields: Any) -> Event:
    (event,) = typed([{"at": at(seconds), "event": name, **fields}])
    return event


FIRED = _event("failpoint_fired", 1, failpoint="after_output", batch=4)
EXITED = _event("driver_exited", 2, start=1, reason="killed by SIGKILL")


def _after(seconds: float) -> datetime:
    return BEGUN + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (FIRED, "the driver was killed at after_output of batch 4"),
        (EXITED, "driver start 1 ended (killed by SIGKILL)"),
        (_event("target_found", 1, executor="1", running_tasks=2), "executor 1 was killed while it held 2 running tasks"),
        (_event("injection_injected", 1, injection="add_partitions-1"), "add_partitions-1 was injected"),
    ],
)
def test_what_was_broken_shortly_before_is_told(event: Event, said: str) -> None:
    assert Timeline([], [event]).cause_before(_after(5)) == said


def test_a_failpoint_says_more_than_the_exit_it_causes() -> None:
    assert Timeline([], [FIRED, EXITED]).cause_before(_after(5)) == "the driver was killed at after_output of batch 4"


def test_what_was_broken_later_or_long_before_is_not_blamed() -> None:
    timeline = Timeline([], [FIRED])
    assert timeline.cause_before(_after(0.5)) is None
    assert timeline.cause_before(_after(2) + NEARBY) is None
    assert timeline.cause_before(None) is None


def test_what_broke_nothing_is_not_blamed() -> None:
    assert (
        Timeline([], [_event("phase", 1, phase="impact"), _event("stage_started", 1, stage="drain", pid=1)]).cause_before(_after(2)) is None
    )


def test_the_last_of_several_strikes_is_blamed() -> None:
    later = _event("failpoint_fired", 20, failpoint="after_output", batch=9)
    assert Timeline([], [FIRED, later]).cause_before(_after(21)) == "the driver was killed at after_output of batch 9"


def test_a_stamp_of_another_zone_is_the_same_moment() -> None:
    stamp = datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC).astimezone()
    assert Timeline([], [FIRED]).cause_before(stamp) is not None


# --- by whom -------------------------------------------------------------------------------------------------------------------------

STARTED = _event("injection_started", 0.5, injection="crash_at_step-1", fault="crash_at_step")
HEALED = _event("injection_healed", 3, injection="crash_at_step-1", checks=[])


def test_the_injection_during_which_it_happened_is_named() -> None:
    told = Timeline([], [STARTED, FIRED, HEALED]).cause_before(_after(5))
    assert told == "during crash_at_step-1, the driver was killed at after_output of batch 4"


def test_what_happened_after_an_injection_was_healed_is_not_laid_to_it() -> None:
    later = _event("driver_exited", 4, start=1, reason="killed by SIGKILL")
    assert Timeline([], [STARTED, HEALED, later]).cause_before(_after(5)) == "driver start 1 ended (killed by SIGKILL)"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"action": "kill_driver"}, "the driver was killed at during_output of batch 6"),
        (
            {"action": "kill_worker", "partition": 2, "attempt": 0},
            "a Python worker was killed at during_output of batch 6 (task 2, attempt 0)",
        ),
        ({"action": "raise"}, "an error was raised at during_output of batch 6"),
    ],
)
def test_a_failpoint_is_told_by_what_it_did(fields: dict[str, Any], said: str) -> None:
    event = _event("failpoint_fired", 1, failpoint="during_output", batch=6, **fields)
    assert Timeline([], [event]).cause_before(_after(2)) == said


def test_a_lost_record_is_told_with_what_was_broken_while_its_batch_went_on(tmp_path: Path) -> None:
    story = Story()
    story.histories.drop([(0, 36)])
    assert blames(story, tmp_path)[0].endswith("it was read by batch 2 of start 1; shortly before that ended, kill_executor-1 was injected")


def test_a_duplicate_whose_copies_do_not_say_who_wrote_them_is_told_by_who_read_it(tmp_path: Path) -> None:
    story = Story()
    story.histories.change((0, 22), batch=None, attempt=None, start=None)
    story.histories.double([(0, 22)])
    said = "output 1/20, then output 1/7; it was read by batch 1 of start 1"  # in the order of their times
    assert said in blames(story, tmp_path)[0]


def test_a_record_that_the_source_had_deleted_before_it_was_read_is_lost_by_that(tmp_path: Path) -> None:
    story = Story()
    story.histories.drop([(0, 59), (0, 3)])
    story.progress = story.progress[:3]
    deleted = {"at": at(8), "event": "injection_injected", "injection": "expire_records-1", "target": {"below": {"2": 20, "0": 20}}}
    story.events.insert(-2, deleted)
    read, unread = blames(story, tmp_path)
    assert read.endswith("it was read by batch 0 of start 1"), "it was delivered or lost before"
    assert unread.endswith("no committed batch covers its offset; the source had deleted it before it was delivered (expire_records-1)")


def test_a_record_out_of_order_a_torn_batch_and_an_early_commit_are_told(tmp_path: Path) -> None:
    spec = replace(SPEC, promises=frozenset(Promise))
    story = Story()
    story.histories.drop([(0, 22)])
    story.progress[3]["committed_at"] = at(5)
    rows = judge(story.write(tmp_path / "run"), spec).table.to_pylist()
    told = {row["anomaly"]: row["blame"] for row in rows if row["row"] == "record"}
    assert told["TORN"] == (
        "batch 1 of start 1 is torn: 14 of its records are visible, others not; the first that is missing is "
        "record 0/22 (source partition 1, offset 7)"
    )
    assert told["OFFSET_AHEAD"].startswith(
        "record 0/59 (source partition 2, offset 19) was delivered only after its offset had been committed"
    )


def test_a_lost_record_whose_batch_was_never_reported_is_told_by_the_batch_that_went_on_behind_it(tmp_path: Path) -> None:
    story = Story()
    story.histories.drop([(0, 36)])
    del story.progress[2]
    assert blames(story, tmp_path)[0].endswith(
        "no committed batch covers its offset, and batch 3 of start 1 went on behind it; "
        "shortly before that ended, kill_executor-1 was injected"
    )
