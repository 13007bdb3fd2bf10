"""The verdict on a stateful job from its folder: outcome, figures, blame, and a second judge that must agree."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamproof.evidence import manifest
from streamproof.evidence.batches import Batch, in_order
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.report.report import render
from streamproof.run.second_judge import disagreement_with
from streamproof.run.stages import suite_spec
from streamproof.suites import agreement, shipped
from streamproof.suites.evaluate import evaluate
from streamproof.verdict.anomaly import RESULT_KINDS, Anomaly
from streamproof.verdict.checks.accounts import check_batches
from streamproof.verdict.guarantee import Guarantee
from streamproof.verdict.judge import RunSpec
from streamproof.verdict.judge import judge as verdict_of
from streamproof.verdict.reconciliation import RECONCILIATION, write_reconciliation
from streamproof.verdict.stateful.reference import Join, Windows
from tests.support.histories import as_of, unjudged
from tests.support.stateful import BEGUN, Event, Model, Output, Story, job, write

WINDOWS = Windows(60_000, 60_000, 60_000)
MINUTE = 60_000
STORY = Story(
    [
        [Event(1 * MINUTE, "a", 1), Event(1 * MINUTE, "b", 2)],
        [Event(5 * MINUTE, "a", 3)],
        [Event(2 * MINUTE, "a", 5), Event(1 * MINUTE, "a", 9), Event(9 * MINUTE, "b", 7)],
        [Event(1 * MINUTE, "a", 9), Event(20 * MINUTE, "b", 7)],
        [],
    ],
    [1, 1, 2, 2, 2],
)
SPEC = RunSpec("run", "experiment", "departures", "two_phase_commit", Guarantee.EXACTLY_ONCE, (), (), 7, reference_model=WINDOWS)


def _judged(
    path: Path, output: Output, spec: RunSpec = SPEC, story: Story = STORY
) -> tuple[RunFolder, dict[str, Any], list[dict[str, Any]]]:
    folder = write(path / "run", story, output)
    judgement = verdict_of(folder, spec)
    return folder, judgement.verdict.to_json(), [row for row in judgement.table.to_pylist() if row["row"] == "record"]


def test_a_run_that_went_well_is_passed_and_says_how_much_was_judged(tmp_path: Path) -> None:
    _, verdict, rows = _judged(tmp_path, job(STORY, WINDOWS))
    assert verdict["outcome"] == "PASSED", verdict["reason"]
    assert verdict["reason"] == (
        "two_phase_commit kept exactly-once for 8 acknowledged records: 5 results were due, 1 records came too late to count"
    )
    assert verdict["anomalies"] == dict.fromkeys(map(str, RESULT_KINDS), 0)
    assert (verdict["results"]["late_rows"], verdict["results"]["dropped_rows"]) == ([1, 1], 1)
    assert verdict["delivered"] == 5
    assert set(unjudged(SPEC, verdict["outcome"], "")) == set(verdict)
    assert rows == []


@pytest.mark.parametrize(
    ("damage", "anomaly", "blame"),
    [
        (
            lambda output: output.results.pop(0),
            "MISSING",
            "the window of a from 1970-01-01 00:01 is missing: count 2, sum 10; its 3 records were read by batch 0 of start 1 and batch 2",
        ),
        (
            lambda output: output.results.append(output.results[0]),
            "REPEATED",
            "the window of a from 1970-01-01 00:01 was delivered 2 times (by batch 0 attempt 0 of start 1 (output 0/0), then by batch 0",
        ),
        (
            lambda output: output.results.append({"key": "z", "begin": 60_000, "count": 1, "sum": 1}),
            "UNEXPECTED",
            "the window of z from 1970-01-01 00:01 was delivered, and should not have been (by batch 0 attempt 0 of start 1 (output 0/5))",
        ),
        (
            lambda output: output.results[0].update(sum=-1),
            "WRONG_VALUE",
            "the window of a from 1970-01-01 00:01 was delivered wrong (by batch 0 attempt 0 of start 1 (output 0/0)): count 2, sum -1",
        ),
        (
            lambda output: output.dropped.__setitem__(3, 4),
            "DROPPED",
            "batch 3 of start 2: it dropped 4 late rows, the declared delay has it drop 1",
        ),
    ],
)
def test_each_anomaly_is_named_with_its_blame_and_the_expectations_agree(tmp_path: Path, damage: Any, anomaly: str, blame: str) -> None:
    output = job(STORY, WINDOWS)
    damage(output)
    _, verdict, rows = _judged(tmp_path, output)
    assert verdict["outcome"] == "FAILED"
    assert verdict["reason"] == f"two_phase_commit broke exactly-once: 1 {anomaly}"
    assert [row["anomaly"] for row in rows] == [anomaly]
    assert rows[0]["blame"].startswith(blame)


@pytest.mark.parametrize("broken", [False, True])
def test_the_suite_and_the_report_know_results(tmp_path: Path, broken: bool) -> None:
    output = job(STORY, WINDOWS)
    if broken:
        output.results[0]["sum"] = -1
    folder, verdict, _ = _judged(tmp_path, output)
    write_reconciliation(folder, verdict_of(folder, SPEC).table)
    folder.verdict.write_text(json.dumps(verdict))
    folder.schedule.write_text(json.dumps({"injections": []}))
    suite_spec(SPEC).write(folder)
    evaluation = evaluate(folder)
    assert evaluation.errors == []
    assert evaluation.unjudged is None
    assert disagreement_with(as_of(verdict), evaluation) == (None, None)
    failing = [result.expectation for result in evaluation.results if not result.success]
    assert failing == (["expect_no_result_to_be_wrong"] if broken else [])
    assert ("was delivered wrong" in render(folder).read_text()) is broken


def test_what_a_guarantee_allows_of_results() -> None:
    assert Guarantee.AT_LEAST_ONCE.forbidden_results == set(RESULT_KINDS) - {Anomaly.REPEATED}
    assert Guarantee.AT_MOST_ONCE.forbidden_results == set(RESULT_KINDS) - {Anomaly.MISSING}
    assert Guarantee.EXACTLY_ONCE.forbidden_results == set(RESULT_KINDS)


def test_a_run_in_which_nothing_was_due_shows_nothing(tmp_path: Path) -> None:
    story = Story([[Event(1)], [Event(2)], [Event(3)]])
    _, verdict, _ = _judged(tmp_path, job(story, WINDOWS), story=story)
    assert (verdict["outcome"], verdict["reason"]) == ("INCONCLUSIVE", "no result was due, so none could be missing")


def test_a_batch_that_was_not_reported_is_not_judged_by_what_it_dropped(tmp_path: Path) -> None:
    output = job(STORY, WINDOWS)
    output.dropped[3] = None  # type: ignore[call-overload]
    _, verdict, _ = _judged(tmp_path, output)
    assert (verdict["outcome"], verdict["results"]["batches_unreported"]) == ("PASSED", 1)


def test_a_batch_that_was_carried_out_again_is_one_batch() -> None:
    one = Batch(4, 1, {"0": 10}, 5, 1, "t")
    again, later = replace(one, start=2, dropped=2), Batch(5, 2, {"0": 10}, 6, 0, "t")
    assert in_order([one, again, later]) == (again, later)
    anew = Batch(4, 2, {"0": 20}, 0, 0, "t")  # another checkpoint counts from the beginning
    assert in_order([one, later, anew]) == (one, later, anew)


def test_damaged_evidence_is_no_verdict(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", STORY, job(STORY, WINDOWS))
    lines = folder.batches.read_text()
    folder.batches.write_text('{"batch":1}\n')
    manifest.write(folder)
    with pytest.raises(EvidenceError, match=r"batches\.jsonl is damaged: start, until"):
        verdict_of(folder, SPEC)
    folder.batches.write_text(lines)
    folder.events.unlink()
    manifest.write(folder)
    with pytest.raises(EvidenceError, match=r"events\.parquet cannot be read"):
        verdict_of(folder, SPEC)


def _without_batch(folder: RunFolder, number: int) -> None:
    lines = folder.batches.read_text().splitlines(keepends=True)
    folder.batches.write_text("".join(line for line in lines if json.loads(line)["batch"] != number))
    manifest.write(folder)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_micro_batch_that_is_missing_is_damaged_evidence_to_both_judges(tmp_path: Path, number: int) -> None:
    folder, _, _ = _judged(tmp_path, job(STORY, WINDOWS))
    table = verdict_of(folder, SPEC).table
    _without_batch(folder, number)
    with pytest.raises(EvidenceError, match=rf"batches\.jsonl is damaged evidence: batch {number} is missing"):
        verdict_of(folder, SPEC)
    with pytest.raises(EvidenceError, match=rf"batches\.jsonl is damaged evidence: batch {number} is missing"):
        agreement.check(folder, suite_spec(SPEC), table)


def test_a_start_with_an_empty_checkpoint_counts_from_the_beginning_again() -> None:
    numbers = [0, 1, 2, 2, 0, 1, 2, 3]
    batches = [Batch(number, 1, {"0": place}, None, 0, "t") for place, number in enumerate(numbers)]
    check_batches(Path("batches.jsonl"), batches)


def test_results_that_were_drained_and_are_not_there_are_damaged_evidence(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", STORY, job(STORY, WINDOWS))
    path = next(folder.payloads.glob("*.parquet"))
    pq.write_table(pq.read_table(path).slice(0, 3), path)
    manifest.write(folder)
    with pytest.raises(EvidenceError, match=r"drain\.json says 5 records, .*payloads holds 3"):
        verdict_of(folder, SPEC)


@pytest.mark.parametrize(("second", "outcome"), [(-1, "PASSED"), (1, "INCONCLUSIVE")])
def test_results_must_come_after_the_fault_whatever_the_guarantee(tmp_path: Path, second: int, outcome: str) -> None:
    """All of these results were written at ``BEGUN``."""
    folder = write(tmp_path / "run", STORY, job(STORY, WINDOWS))
    at = (BEGUN + timedelta(seconds=second)).isoformat()
    checks = [{"check": "the process is gone", "passed": True}]
    lines = [
        {"at": at, "event": "injection_started", "injection": "kill_executor-1", "fault": "kill_executor"},
        {"at": at, "event": "injection_injected", "injection": "kill_executor-1"},
        {"at": at, "event": "injection_evidence", "injection": "kill_executor-1", "checks": checks},
        {"at": at, "event": "injection_healed", "injection": "kill_executor-1", "checks": checks},
    ]
    journal = folder.journal.path.read_text()
    folder.journal.path.write_text("".join(json.dumps(line) + "\n" for line in lines) + journal)
    folder.schedule.write_text(json.dumps({"injections": [{"injection": "kill_executor-1", "fault": "kill_executor"}]}))
    manifest.write(folder)
    spec = replace(SPEC, guarantee=Guarantee.AT_MOST_ONCE, planned=("kill_executor-1",))
    judgement = verdict_of(folder, spec)
    assert judgement.verdict.outcome == outcome, judgement.verdict.reason
    assert outcome == "PASSED" or judgement.verdict.reason.startswith("nothing was delivered after kill_executor-1")
    write_reconciliation(folder, judgement.table)
    judgement.verdict.write(folder)
    suite_spec(spec).write(folder)
    evaluation = evaluate(folder)
    failing = [result.expectation for result in evaluation.results if not result.success]
    assert failing == ([] if outcome == "PASSED" else ["expect_output_after_every_fault"])


# --- the second judge -----------------------------------------------------------------------------------------------------------

_NUMBERS = iter(range(10**6))


def _damaged(output: Output, data: Any) -> None:
    """Some results taken out, doubled or changed, and a batch that dropped another number of rows."""
    for _ in range(data.draw(st.integers(0, 3))):
        if not output.results:
            break
        at = data.draw(st.integers(0, len(output.results) - 1))
        kind = data.draw(st.sampled_from(["drop", "double", "change", "invent", "late", "rubbish"]))
        result = output.results[at]
        if kind == "drop" and isinstance(result, dict):
            output.results.pop(at)
        elif kind == "double":
            output.results.append(result)
        elif kind == "change" and isinstance(result, dict):
            name = "sum" if "sum" in result else "left_value"
            output.results[at] = {**result, name: result[name] + 1}
        elif kind == "invent" and isinstance(result, dict):
            output.results.append({**result, "begin": 7 * MINUTE} if "begin" in result else {**result, "right": "0-ff", "right_value": 1})
        elif kind == "late":
            output.dropped[data.draw(st.integers(0, len(output.dropped) - 1))] += 1
        else:
            output.results.append(b"rubbish")  # type: ignore[arg-type]


MODELS = (WINDOWS, Windows(180_000, 60_000, 120_000), Join(2 * MINUTE), Join(MINUTE, True, MINUTE, MINUTE))


@pytest.mark.parametrize("model", MODELS, ids=repr)
@given(data=st.data())
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_names_the_same_results(model: Model, tmp_path: Path, data: Any) -> None:
    streams = st.integers(0, 1) if isinstance(model, Join) else st.just(0)
    events = st.builds(Event, st.integers(0, 12).map(MINUTE.__mul__), st.sampled_from("ab"), st.integers(-3, 3), streams)
    batches = data.draw(st.lists(st.lists(events, min_size=1, max_size=5), min_size=1, max_size=6))
    story = Story(batches, sorted(data.draw(st.lists(st.integers(1, 3), min_size=len(batches), max_size=len(batches)))))
    output = job(story, model)
    _damaged(output, data)
    folder = write(tmp_path / str(next(_NUMBERS)), story, output)
    spec = replace(SPEC, reference_model=model)
    table = verdict_of(folder, spec).table
    assert agreement.check(folder, suite_spec(spec), table) is None
    assert agreement.check(folder, suite_spec(spec), _with(table, "REPEATED", "nothing")) is not None, "they were judged"


def test_a_disagreement_names_what_only_one_of_the_two_found(tmp_path: Path) -> None:
    output = job(STORY, WINDOWS)
    output.results.pop(0)
    folder = write(tmp_path / "run", STORY, output)
    table = _with(verdict_of(folder, SPEC).table, "REPEATED", "the window of q")
    table = table.filter([anomaly != "MISSING" for anomaly in table["anomaly"].to_pylist()])
    assert agreement.check(folder, suite_spec(SPEC), table) == (
        "the checkers and the expectation suites do not agree: only the checkers name REPEATED the window of q;"
        " only the expectation suites name MISSING the window of a from 1970-01-01 00:01"
    )


def _with(table: pa.Table, anomaly: str, result: str) -> pa.Table:
    row = {"row": "record", "anomaly": anomaly, "result": result}
    return pa.concat_tables([table, pa.Table.from_pylist([row], schema=RECONCILIATION)])


def test_the_suites_do_not_judge_results_where_nobody_knows_what_was_sent(tmp_path: Path) -> None:
    story = Story([[Event(1, sure=False), Event(2)], [Event(3 * MINUTE)]])
    folder = write(tmp_path / "run", story, job(story, WINDOWS))
    judgement = verdict_of(folder, SPEC)
    write_reconciliation(folder, _with(judgement.table, "REPEATED", "nothing"))
    folder.verdict.write_text(json.dumps({**judgement.verdict.to_json(), "outcome": "FAILED"}))
    folder.schedule.write_text(json.dumps({"injections": []}))
    suite_spec(SPEC).write(folder)
    evaluation = evaluate(folder)
    assert (evaluation.unjudged, evaluation.disagreement, evaluation.errors) == ("1 sends have an unknown outcome", None, [])
    assert not {result.expectation for result in evaluation.results} & shipped.OF_RESULTS
    assert evaluation.notes[-1] == "The results are judged by the checkers alone: 1 sends have an unknown outcome."
    assert disagreement_with(as_of(folder.read_json(folder.verdict)), evaluation) == (None, None), (
        "what is wrong may be what they did not judge"
    )
