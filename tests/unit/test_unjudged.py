"""A promise that the evidence leaves unjudged makes a run INCONCLUSIVE: for both judges, and with what is missing in numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streamproof.evidence import manifest
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.outcome import Outcome
from streamproof.run.stages import suite_spec
from streamproof.suites import agreement
from streamproof.suites.expectations import database
from streamproof.verdict.guarantee import Promise
from streamproof.verdict.judge import RunSpec, judge
from streamproof.verdict.verdict import Verdict
from tests.support.histories import SPEC, Story

ATOMIC, ORDERED = (replace(SPEC, promises=frozenset({promise})) for promise in (Promise.ATOMIC, Promise.ORDERED))
JUDGED = "all of it was judged"


def _by_suites(folder: RunFolder, promise: str) -> bool:
    """Whether the suites judged all of a promise."""
    with database.building(folder.path) as connection:
        return not connection.execute(f"FROM unjudged_{promise}").fetchall()


def _verdict(story: Story, spec: RunSpec, path: Path) -> Verdict:
    """The verdict; the suites' queries must agree with it."""
    folder = story.write(path)
    judgement = judge(folder, spec)
    assert agreement.check(folder, suite_spec(spec), judgement.table) is None
    for promise in spec.promises:
        assert _by_suites(folder, promise) == (not judgement.verdict.unjudged)
    return judgement.verdict


def _nameless(story: Story, count: int) -> None:
    """No header says who wrote the first copies."""
    copies = story.histories.delivered
    story.histories.delivered = [replace(copy, start=None, batch=None, attempt=None) for copy in copies[:count]] + copies[count:]


def _unreported(story: Story) -> None:
    """The third batch was really two, 2 and 3, and neither was reported; those behind them count on from 4."""
    story.progress = [{**line, "batch": line["batch"] + 2 * (line["batch"] > 1)} for line in story.progress]
    named = {0: 0, 1: 1, 3: 5}
    story.histories.delivered = [replace(copy, batch=named.get(copy.batch or 0, 2 + copy.offset % 2)) for copy in story.histories.delivered]


def _without_offset(story: Story, sequence: int) -> None:
    """The broker acknowledged a retried record and did not repeat its offset."""
    story.histories.sent = [replace(row, offset=None) if row.sequence == sequence else row for row in story.histories.sent]


def test_copies_without_a_batch_leave_atomic_unjudged(tmp_path: Path) -> None:
    story = Story()
    _nameless(story, 60)
    verdict = _verdict(story, ATOMIC, tmp_path / "run")
    assert (verdict.outcome, verdict.reason) == (
        "INCONCLUSIVE",
        "atomic was not judged: 60 of 60 copies do not name the batch that wrote them",
    )


@pytest.mark.parametrize("damage", [lambda story: _nameless(story, 1), _unreported])
def test_nobody_asks_for_batches_where_atomic_is_not_promised(damage: Callable[[Story], None], tmp_path: Path) -> None:
    story = Story()
    damage(story)
    verdict = _verdict(story, replace(SPEC, promises=frozenset()), tmp_path / "run")
    assert (verdict.outcome, verdict.unjudged) == ("PASSED", ())


def test_two_adjacent_batches_without_a_report_leave_atomic_unjudged(tmp_path: Path) -> None:
    story = Story()
    _unreported(story)
    verdict = _verdict(story, ATOMIC, tmp_path / "run")
    assert verdict.outcome == "INCONCLUSIVE"
    assert verdict.reason == "atomic was not judged: no report says what the visible batches 2, 3 read"


def test_one_batch_without_a_report_lies_between_its_neighbours(tmp_path: Path) -> None:
    story = Story()
    story.progress = [line for line in story.progress if line["batch"] != 1]
    verdict = _verdict(story, ATOMIC, tmp_path / "run")
    assert (verdict.outcome, verdict.unjudged) == ("PASSED", ())


@pytest.mark.parametrize("sequence", [0, 1, 2, 27, 57, 58, 59])
@pytest.mark.parametrize("spec", [ATOMIC, ORDERED])
def test_an_acknowledged_record_without_an_offset_leaves_a_promise_unjudged(sequence: int, spec: RunSpec, tmp_path: Path) -> None:
    story = Story()
    _without_offset(story, sequence)
    (promise,) = spec.promises
    verdict = _verdict(story, spec, tmp_path / "run")
    assert verdict.outcome == "INCONCLUSIVE"
    assert verdict.reason == f"{promise} was not judged: 1 acknowledged records have no known offset in the source"


def test_a_torn_batch_outweighs_what_is_not_judged(tmp_path: Path) -> None:
    story = Story()
    _nameless(story, 1)
    story.histories.drop([(0, 40)])
    verdict = _verdict(story, ATOMIC, tmp_path / "run")
    assert verdict.outcome == "FAILED"


@pytest.mark.parametrize("sequence", [0, 27, 57, 59])
def test_a_record_without_an_offset_is_no_loss_of_the_source(sequence: int, tmp_path: Path) -> None:
    """The judges once disagreed about the last record of a partition."""
    story = Story()
    _without_offset(story, sequence)
    folder = story.write(tmp_path / "run")
    folder.source.write_text('{"end_offsets": {"0": 20, "1": 20, "2": 20}}')
    manifest.write(folder)
    verdict = judge(folder, SPEC).verdict
    assert (verdict.outcome, verdict.behind_the_end) == ("PASSED", 0)
    assert _source_is_complete(folder)


def test_more_records_than_the_source_holds_are_lost_by_it_wherever_they_lie(tmp_path: Path) -> None:
    story = Story()
    _without_offset(story, 57)
    folder = story.write(tmp_path / "run")
    folder.source.write_text('{"end_offsets": {"0": 19, "1": 20, "2": 20}}')
    manifest.write(folder)
    verdict = judge(folder, SPEC).verdict
    assert (verdict.outcome, verdict.behind_the_end) == ("INCONCLUSIVE", 1)
    assert not _source_is_complete(folder)


def _source_is_complete(folder: RunFolder) -> bool:
    from streamproof.suites.expectations.runs import ExpectSourceToBeComplete

    with database.building(folder.path) as connection:
        return not connection.execute(ExpectSourceToBeComplete.unexpected_query).fetchall()


def test_an_indeterminate_record_has_no_place_and_leaves_nothing_unjudged(tmp_path: Path) -> None:
    story = Story()
    story.histories.settle([(0, 27)], Outcome.INDETERMINATE)
    for number, spec in enumerate((ATOMIC, ORDERED)):
        verdict = _verdict(story, spec, tmp_path / str(number))
        assert (verdict.outcome, verdict.unjudged) == ("PASSED", ())
