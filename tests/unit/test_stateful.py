"""Results of stateful jobs: the recomputation says what a job delivers that reads the same batches, and names what was changed in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.stateful.reference import Deduplication, Join, Sessions, Totals, Windows, judge_results
from tests.support.stateful import Event, Model, Output, Story, job, payloads

TUMBLING, SLIDING = Windows(10, 10, 10), Windows(10, 4, 8)
MODELS: tuple[Model, ...] = (
    TUMBLING,
    SLIDING,
    Windows(5, 5, 0),
    Sessions(4, 6),
    Join(8),
    Join(8, outer=False),
    Join(5, before_ms=2, after_ms=3),
    Deduplication(7),
    Totals(),
)
NAMES = [repr(each) for each in MODELS]


def _judged(story: Story, model: Model, output: Output) -> dict[Anomaly, list[str]]:
    judged = judge_results(model, story.inputs(), story.ran(output), payloads(output.results))
    found: dict[Anomaly, list[str]] = {}
    for finding in judged.findings:
        found.setdefault(finding.anomaly, []).append(finding.result or f"batch {finding.batch}")
    return found


def _events(sure: st.SearchStrategy[bool] | None = None) -> st.SearchStrategy[Event]:
    times, values = st.integers(0, 60), st.integers(-3, 3)
    return st.builds(Event, times, st.sampled_from("ab"), values, st.integers(0, 1), st.just(True) if sure is None else sure)


def _stories(model: Model, sure: st.SearchStrategy[bool] | None = None) -> st.SearchStrategy[Story]:
    events = _events(sure)
    if not isinstance(model, Join):
        events = events.map(lambda event: Event(event.at, event.key, event.value, 0, event.sure))
    batches = st.lists(st.lists(events, max_size=5), min_size=1, max_size=6)
    unread = st.lists(events.map(lambda event: Event(event.at, event.key, event.value, event.stream, False)), max_size=2)

    def story(parts: tuple[list[list[Event]], list[Event], list[bool]]) -> Story:
        batches, unread, again = parts
        starts = (1 + np.cumsum(again[: len(batches)])).tolist()
        return Story(batches, starts, unread if sure is not None else [])

    return st.tuples(batches, unread, st.lists(st.booleans(), min_size=6, max_size=6)).map(story)


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
@given(data=st.data())
@settings(max_examples=30)
def test_what_a_job_delivers_is_what_is_computed_again(model: Model, data: Any) -> None:
    story = data.draw(_stories(model))
    output = job(story, model)
    assert _judged(story, model, output) == {}


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
@given(data=st.data())
@settings(max_examples=30)
def test_no_alarm_whether_a_send_that_nobody_knows_of_was_read_or_not(model: Model, data: Any) -> None:
    story = data.draw(_stories(model, st.booleans()))
    assert _judged(story, model, job(story, model)) == {}


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
@given(data=st.data())
@settings(max_examples=12)
def test_every_result_that_is_taken_out_is_missing(model: Model, data: Any) -> None:
    story = data.draw(_stories(model))
    output = job(story, model)
    if output.results:
        output.results.pop(data.draw(st.integers(0, len(output.results) - 1)))
        found = _judged(story, model, output)
        assert set(found) <= {Anomaly.MISSING, Anomaly.UNEXPECTED}
        assert len(found[Anomaly.MISSING]) >= 1


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
@given(data=st.data())
@settings(max_examples=12)
def test_every_result_that_is_delivered_again_is_repeated(model: Model, data: Any) -> None:
    story = data.draw(_stories(model))
    output = job(story, model)
    if output.results:
        output.results.append(output.results[data.draw(st.integers(0, len(output.results) - 1))])
        assert {name: len(found) for name, found in _judged(story, model, output).items()} == {Anomaly.REPEATED: 1}


@pytest.mark.parametrize("model", [each for each in MODELS if each.values], ids=repr)
@given(data=st.data())
@settings(max_examples=12)
def test_every_value_that_is_changed_is_wrong(model: Model, data: Any) -> None:
    story = data.draw(_stories(model))
    output = job(story, model)
    if output.results:
        at = data.draw(st.integers(0, len(output.results) - 1))
        value = "left_value" if isinstance(model, Join) else "sum"
        output.results[at] = {**output.results[at], value: output.results[at][value] + data.draw(st.sampled_from([-1, 1, 1000]))}
        assert {name: len(found) for name, found in _judged(story, model, output).items()} == {Anomaly.WRONG_VALUE: 1}


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
@given(data=st.data(), more=st.sampled_from([-1, 1]))
@settings(max_examples=12)
def test_a_batch_that_drops_another_number_of_rows_is_named(model: Model, data: Any, more: int) -> None:
    story = data.draw(_stories(model))
    output = job(story, model)
    at = data.draw(st.integers(0, len(output.dropped) - 1))
    output.dropped[at] += more
    if isinstance(model, Sessions) and more > 0:  # how late events fell to tasks is not known: several of one time may be several rows
        return
    assert _judged(story, model, output) == {Anomaly.DROPPED: [f"batch {at}"]}


# --- by hand ----------------------------------------------------------------------------------------------------------------------

STORY = Story(
    [
        [Event(1, "a", 1), Event(12, "b", 2)],
        [Event(25, "a", 3), Event(3, "a", 5)],
        [Event(3, "a", 7), Event(30, "a", 1)],
        [Event(4, "a", 9), Event(4, "a", 9), Event(60, "a", 1)],
        [],
    ]
)


def test_a_late_record_is_late_by_the_watermark_of_the_batch_before() -> None:
    output = job(STORY, TUMBLING)
    assert output.dropped == [0, 0, 0, 1, 0]  # two records of one window are one row
    assert {"key": "a", "begin": 0, "count": 3, "sum": 13} in output.results
    judged = judge_results(TUMBLING, STORY.inputs(), STORY.ran(output), payloads(output.results))
    assert judged.figures == {
        "due": 4,
        "delivered": 4,
        "late_records": 2,
        "late_rows": [1, 1],
        "dropped_rows": 1,
        "batches": 5,
        "batches_unreported": 0,
    }


def test_a_watermark_that_is_too_small_is_found_out() -> None:
    """The job sets a delay of 1 where 10 was declared: what came within the declared delay was dropped."""
    output = job(STORY, Windows(10, 10, 1))
    found = _judged(STORY, TUMBLING, output)
    assert set(found) == {Anomaly.WRONG_VALUE, Anomaly.DROPPED}
    assert found[Anomaly.WRONG_VALUE] == ["the window of a from 1970-01-01 00:00"]


def test_a_state_that_was_lost_is_found_out() -> None:
    """A second start begins with an empty state: windows that were open are delivered in part, or not at all."""
    first, second = Story(STORY.batches[:1]), Story(STORY.batches[1:])
    output = Output(
        [*job(first, TUMBLING).results, *job(second, TUMBLING).results], [*job(first, TUMBLING).dropped, *job(second, TUMBLING).dropped]
    )
    found = _judged(Story(STORY.batches, [1, 2, 2, 2, 2]), TUMBLING, output)
    assert "the window of a from 1970-01-01 00:00" in found[Anomaly.WRONG_VALUE]
    assert found[Anomaly.MISSING] == ["the window of b from 1970-01-01 00:00"]


def test_what_is_no_result_is_unexpected() -> None:
    output = job(STORY, TUMBLING)
    for rubbish in (
        b"",
        b"{",
        b"[]",
        b'{"key":"a"}',
        b'{"key":"a","begin":0,"count":"x","sum":1}',
        b'{"key":"a","begin":1e30,"count":1,"sum":1}',
    ):
        judged = judge_results(TUMBLING, STORY.inputs(), STORY.ran(output), payloads([*output.results, rubbish]))
        assert [(finding.anomaly, finding.result) for finding in judged.findings] == [
            (Anomaly.UNEXPECTED, "something that is no result")
        ], rubbish


def test_a_finding_says_what_was_due_and_who_read_it() -> None:
    output = job(STORY, TUMBLING)
    output.results[0] = {**output.results[0], "sum": 0}
    (finding,) = judge_results(TUMBLING, STORY.inputs(), STORY.ran(output), payloads(output.results)).findings
    assert finding.detail == (
        "count 3, sum 0 instead of count 3, sum 13; its 5 records were read by batch 0 of start 1 and batch 1 of start 1"
        " and batch 2 of start 1 and batch 3 of start 1"
    )


def test_an_unknown_send_widens_what_a_window_may_say() -> None:
    story = Story([[Event(1, "a", 4), Event(2, "a", 2, sure=False)], [Event(40, "a", 1)], []])
    for told_sum, count, right in ((6, 2, True), (4, 1, True), (7, 2, False), (4, 3, False)):
        output = Output([{"key": "a", "begin": 0, "count": count, "sum": told_sum}], [0, 0, 0])
        assert (_judged(story, TUMBLING, output) == {}) is right, (told_sum, count)
