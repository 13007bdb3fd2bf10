"""The suite says of a run what the verdict says, from the same evidence by another way; its pages and its answers need no network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import vl_convert
from hypothesis import given
from hypothesis import strategies as st

from streamproof.evidence import manifest
from streamproof.evidence.folder import EvidenceError, RunFolder, read_json_lines, write_atomically
from streamproof.evidence.histories import SentRow, write_delivered, write_sent
from streamproof.evidence.journal import (
    DriverExited,
    DriverStarted,
    EvidenceCheck,
    FailpointFired,
    InjectionEvidence,
    InjectionStarted,
    PhaseBegan,
    RunCreated,
    StageFailed,
    StageFinished,
    StageStarted,
)
from streamproof.evidence.outcome import Outcome
from streamproof.report import charts, vega
from streamproof.report.report import ANOMALIES, SHOWN_RECORDS, render
from streamproof.report.timeline import BINS, Span, _bin, timeline
from streamproof.run.second_judge import disagreement_with
from streamproof.run.stages import suite_spec
from streamproof.suites.data_docs import rewrite
from streamproof.suites.evaluate import Evaluation, evaluate, results_path
from streamproof.suites.expectations import database
from streamproof.suites.worker import EvaluationWorker, WorkerError
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.guarantee import Guarantee
from streamproof.verdict.judge import RunSpec, judge
from streamproof.verdict.reconciliation import write_reconciliation
from streamproof.verdict.scan.scan import read_flow
from streamproof.verdict.timing.baseline import attach
from streamproof.verdict.verdict import Verdict
from tests.support.histories import as_of, unjudged

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RECORDS = 40
GOOD_CHECK = {"check": "the executor's process is gone", "passed": True, "detail": "pid 4711 is not there"}
HEALED_CHECK = {"check": "a new executor registered", "passed": True, "detail": "executor 3"}


@dataclass
class Story:
    """A run to be told to the disk. A test starts from the clean one and damages one thing."""

    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    expected: tuple[Anomaly, ...] = ()
    acked: int = RECORDS
    unknown: int = 0
    """Of so many the outcome is unknown; they are delivered all the same."""
    injected_at: float = 11
    deliver: list[int] = field(default_factory=lambda: list(range(RECORDS)))
    phases: tuple[str, ...] = ("steady", "impact", "recovery")
    batches: tuple[str, ...] = ("steady", "impact", "recovery")
    planned: tuple[str, ...] = ("kill_executor-1",)
    checks: list[dict[str, Any]] | None = field(default_factory=lambda: [GOOD_CHECK])
    heals: list[dict[str, Any]] | None = field(default_factory=lambda: [HEALED_CHECK])
    drained: bool = True
    recover_within_s: float | None = None
    ends: dict[str, int] = field(default_factory=lambda: {"0": RECORDS // 2, "1": RECORDS // 2})
    """Where the partitions of the input end."""
    commits: dict[str, float] = field(default_factory=dict)
    """When the batch of a phase was committed, in s; in its middle when absent."""
    lies: int = 0
    """So many records were delivered in another year, if one believes their times."""

    @property
    def spec(self) -> RunSpec:
        versions = {"pyspark": "4.1.3", "kafka": "4.1.0"}
        spec = RunSpec("run-1", "story", "kafka_to_kafka", "two_phase_commit", self.guarantee, self.expected, self.planned, 7, versions)
        return replace(spec, recover_within_s=self.recover_within_s)


def at(seconds: float) -> str:
    return (T0 + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def tell(path: Path, story: Story) -> RunFolder:
    """Write the folder of a run that went like ``story``, judged as `verify` judges it."""
    folder = RunFolder.create(path)
    folder.experiment.write_text("name: story\n")
    outcomes = [Outcome.ACKED if number < story.acked else Outcome.REJECTED for number in range(RECORDS)]
    outcomes[5 : 5 + story.unknown] = [Outcome.INDETERMINATE] * story.unknown
    write_sent(
        folder.sent / "0.parquet",
        [
            SentRow(0, number, number % 2, number // 2, f"k{number}", number, _sent_at(number), outcome)
            for number, outcome in enumerate(outcomes)
        ],
    )
    count = len(story.deliver)
    write_delivered(
        folder.delivered / "0.parquet",
        {
            "producer": [0] * count,
            "sequence": story.deliver,
            "crc": story.deliver,
            "partition": [0] * count,
            "offset": list(range(count)),
            "batch": [None] * count,
            "attempt": [None] * count,
            "start": [None] * count,
            "delivered_at": [_delivered_at(story, number) for number in story.deliver],
        },
    )
    drain = {"complete": story.drained, "reason": None if story.drained else "no record for 30 s", "end_offsets": {"0": count}}
    folder.drain.write_text(json.dumps({**drain, "records": count, "seconds": 0.5, "records_per_s": 80.0}))
    folder.source.write_text(json.dumps({"end_offsets": story.ends}))
    _journal(folder, story)
    lines = []
    for number, phase in enumerate(story.batches):
        committed = story.commits.get(phase, _committed_at(phase))
        share = (number + 1) * RECORDS // 2 // len(story.batches)
        until = {"0": share, "1": share}
        moment = {"started_at": at(committed - 1), "committed_at": at(committed), "trigger_ms": 1000}
        lines.append({"batch": number, "start": 1, "rows": 13, **moment, "from": None, "until": until, "behind_latest": 0})
    folder.progress.write_text("".join(json.dumps(line) + "\n" for line in lines))
    planned = [{"injection": name, "fault": "kill_executor"} for name in story.planned]
    folder.schedule.write_text(json.dumps({"injections": planned}))
    manifest.write(folder)
    judgement = judge(folder, story.spec)
    write_reconciliation(folder, judgement.table)
    write_atomically(folder.verdict, json.dumps(judgement.verdict.to_json()))
    suite_spec(story.spec).write(folder)
    return folder


def _committed_at(phase: str) -> float:
    return 10 * ("steady", "impact", "recovery").index(phase) + 5.0


def _sent_at(number: int) -> datetime:
    """Some in each phase; the last record first, so that it waits from the beginning."""
    return T0 + timedelta(seconds=(number + 1) % RECORDS * 30 / RECORDS)


def _delivered_at(story: Story, number: int) -> datetime:
    """Half a second before its batch ended."""
    batch = min(number * len(story.batches) // RECORDS, len(story.batches) - 1)
    return T0 + timedelta(seconds=_committed_at(story.batches[batch]) - 0.5, days=-4000 if number < story.lies else 0)


def _journal(folder: RunFolder, story: Story) -> None:
    events: list[dict[str, Any]] = [{"at": at(-8), "event": "run_created", "run": "run-1", "seed": 7}]
    events.append({"at": at(-7), "event": "driver_started", "start": 1, "pid": 100})
    for phase in story.phases:
        events.append({"at": at(10 * ("steady", "impact", "recovery").index(phase)), "event": "phase", "phase": phase})
    for number, name in enumerate(story.planned):
        injected_at = story.injected_at + number
        target = {"executor": "2", "pid": 4711}
        parameters: dict[str, Any] = {}
        started = {"event": "injection_started", "fault": "kill_executor", "target": target, "parameters": parameters}
        events.append({"at": at(injected_at), "injection": name, **started})
        events.append({"at": at(injected_at + 0.1), "event": "injection_injected", "injection": name})
        if story.checks is not None:
            events.append({"at": at(injected_at + 1), "event": "injection_evidence", "injection": name, "checks": story.checks})
        if story.heals is not None:
            events.append({"at": at(injected_at + 2), "event": "injection_healed", "injection": name, "checks": story.heals})
    events.append({"at": at(30), "event": "phase", "phase": "done"})
    events.append({"at": at(31), "event": "stage_finished", "stage": "drain", "seconds": 1.5})
    events.sort(key=lambda event: str(event["at"]))
    folder.journal.path.write_text("".join(json.dumps(event) + "\n" for event in events))


CLEAN = Story()
AT_LEAST_ONCE = Story(guarantee=Guarantee.AT_LEAST_ONCE)
DOUBLED = [*range(RECORDS), 3, 3]
STORIES: dict[str, tuple[Story, RunOutcome, set[str]]] = {
    "clean": (CLEAN, RunOutcome.PASSED, set()),
    "no fault planned": (replace(CLEAN, planned=()), RunOutcome.PASSED, set()),
    "one lost": (replace(CLEAN, deliver=list(range(1, RECORDS))), RunOutcome.FAILED, {"expect_no_record_to_be_lost"}),
    "one doubled": (replace(CLEAN, deliver=DOUBLED), RunOutcome.FAILED, {"expect_no_record_to_be_duplicated"}),
    "one never sent": (replace(CLEAN, deliver=[*range(RECORDS), 999]), RunOutcome.FAILED, {"expect_no_phantom_record"}),
    "one refused, yet delivered": (replace(CLEAN, acked=RECORDS - 1), RunOutcome.FAILED, {"expect_no_phantom_record"}),
    "doubled where that is allowed": (replace(AT_LEAST_ONCE, deliver=DOUBLED), RunOutcome.PASSED, set()),
    "lost where that is allowed": (
        replace(CLEAN, guarantee=Guarantee.AT_MOST_ONCE, deliver=list(range(1, RECORDS))),
        RunOutcome.PASSED,
        set(),
    ),
    "control caught": (replace(AT_LEAST_ONCE, expected=(Anomaly.DUPLICATED,), deliver=DOUBLED), RunOutcome.PASSED, set()),
    "control not caught": (
        replace(AT_LEAST_ONCE, expected=(Anomaly.DUPLICATED,)),
        RunOutcome.INCONCLUSIVE,
        {"expect_negative_control_to_be_observed"},
    ),
    "no evidence": (replace(CLEAN, checks=None), RunOutcome.INCONCLUSIVE, {"expect_every_fault_to_have_evidence"}),
    "evidence of nothing": (replace(CLEAN, checks=[]), RunOutcome.INCONCLUSIVE, {"expect_every_fault_to_have_evidence"}),
    "a check that does not hold": (
        replace(CLEAN, checks=[GOOD_CHECK, {**GOOD_CHECK, "passed": False}]),
        RunOutcome.INCONCLUSIVE,
        {"expect_every_fault_to_have_evidence"},
    ),
    "not healed": (replace(CLEAN, heals=None), RunOutcome.INCONCLUSIVE, {"expect_every_fault_to_be_healed"}),
    "nothing to heal": (replace(CLEAN, heals=[]), RunOutcome.PASSED, set()),
    "drain stopped early": (replace(CLEAN, drained=False), RunOutcome.INCONCLUSIVE, {"expect_drain_to_reach_the_end"}),
    "no batch under impact": (
        replace(CLEAN, batches=("steady", "recovery")),
        RunOutcome.INCONCLUSIVE,
        {"expect_every_phase_to_have_batches"},
    ),
    "no recovery phase": (
        replace(CLEAN, phases=("steady", "impact"), batches=("steady", "impact")),
        RunOutcome.INCONCLUSIVE,
        {"expect_every_phase_to_have_batches", "expect_every_phase_to_have_sends"},
    ),
    "commits in the ms in which the next phase begins": (
        replace(CLEAN, commits={"steady": 10, "impact": 20, "recovery": 30}),
        RunOutcome.PASSED,
        set(),
    ),
    "no output after the fault": (
        replace(CLEAN, batches=("steady",)),
        RunOutcome.INCONCLUSIVE,
        {"expect_every_phase_to_have_batches", "expect_output_after_every_fault"},
    ),
    "recovered in time": (replace(CLEAN, recover_within_s=14), RunOutcome.PASSED, set()),
    "recovered too late": (replace(CLEAN, recover_within_s=13), RunOutcome.FAILED, {"expect_recovery_in_time"}),
    "not healed, and so not known to have recovered in time": (
        replace(CLEAN, heals=None, recover_within_s=13),
        RunOutcome.INCONCLUSIVE,
        {"expect_every_fault_to_be_healed", "expect_recovery_in_time"},
    ),
    "event times": (
        replace(CLEAN, lies=RECORDS),
        RunOutcome.INCONCLUSIVE,
        {"expect_no_offset_to_be_committed_ahead_of_its_output"},
    ),
    "one event time, and a limit for the recovery": (
        replace(CLEAN, lies=1, recover_within_s=1000),
        RunOutcome.INCONCLUSIVE,
        {"expect_no_offset_to_be_committed_ahead_of_its_output", "expect_recovery_in_time"},
    ),
    "event times where they do not matter": (replace(CLEAN, lies=RECORDS, guarantee=Guarantee.AT_MOST_ONCE), RunOutcome.PASSED, set()),
    "the source lost what it had acknowledged": (
        replace(CLEAN, ends={"0": RECORDS // 2, "1": RECORDS // 2 - 1}),
        RunOutcome.INCONCLUSIVE,
        {"expect_source_to_be_complete"},
    ),
    "nothing acknowledged": (
        replace(CLEAN, acked=0, deliver=[]),
        RunOutcome.INCONCLUSIVE,
        {
            "expect_source_to_be_complete",
            "expect_output_after_every_fault",
            "expect_every_phase_to_have_sends",
            "expect_something_to_be_delivered",
        },
    ),
    "most outcomes unknown": (replace(CLEAN, unknown=3), RunOutcome.INCONCLUSIVE, {"expect_outcomes_to_be_known"}),
    "few outcomes unknown": (replace(CLEAN, unknown=2), RunOutcome.PASSED, set()),
    "nothing delivered": (
        replace(CLEAN, guarantee=Guarantee.AT_MOST_ONCE, deliver=[]),
        RunOutcome.INCONCLUSIVE,
        {"expect_output_after_every_fault", "expect_something_to_be_delivered"},
    ),
    "a fault after all output": (replace(CLEAN, injected_at=26), RunOutcome.INCONCLUSIVE, {"expect_output_after_every_fault"}),
}


@pytest.mark.parametrize("name", STORIES)
def test_the_suite_holds_exactly_when_the_verdict_is_passed(tmp_path: Path, name: str) -> None:
    story, outcome, failing = STORIES[name]
    folder = tell(tmp_path / "run-1", story)
    verdict = folder.read_json(folder.verdict)
    evaluation = evaluate(folder)
    assert verdict["outcome"] == outcome, verdict["reason"]
    assert evaluation.errors == []
    assert {result.expectation for result in evaluation.results if not result.success} == failing
    assert evaluation.success == (outcome is RunOutcome.PASSED)
    assert disagreement_with(as_of(verdict), evaluation) == (None, None)


def test_a_result_says_what_was_observed_and_shows_the_rows(tmp_path: Path) -> None:
    evaluation = evaluate(tell(tmp_path / "run-1", replace(CLEAN, deliver=DOUBLED)))
    found = {result.expectation: result for result in evaluation.results}
    doubled = found["expect_no_record_to_be_duplicated"]
    assert (doubled.observed, doubled.unexpected) == ("1 DUPLICATED", 1)
    assert doubled.sample[0]["sequence"] == 3
    assert doubled.sample[0]["copies"] == 3
    assert found["expect_source_to_be_complete"].observed == "40 acknowledged in 2 partitions"
    assert found["expect_every_phase_to_have_batches"].observed == "steady 1, impact 1, recovery 1"
    assert found["expect_every_phase_to_have_sends"].observed == "steady 14, impact 13, recovery 13"
    assert found["expect_every_fault_to_have_evidence"].observed == "1 of 1 checks passed, 1 injected"
    assert all(result.description.endswith(".") for result in evaluation.results)


def test_what_a_guarantee_allows_is_not_expected_to_be_absent(tmp_path: Path) -> None:
    evaluation = evaluate(tell(tmp_path / "run-1", AT_LEAST_ONCE))
    assert "expect_no_record_to_be_duplicated" not in {result.expectation for result in evaluation.results}
    assert evaluation.suite == "at-least-once"
    assert evaluation.notes == ["At-least-once allows DUPLICATED: a record may come twice, but none may be missing."]


def test_evaluating_twice_leaves_one_validation_and_the_same_answer(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", CLEAN)
    first, second = evaluate(folder), evaluate(folder)
    assert replace(first, seconds=0) == replace(second, seconds=0)
    assert len(list((folder.expectations / "data_docs").glob("validations/**/*.html"))) == 1
    assert replace(Evaluation.from_dict(json.loads(results_path(folder).read_text())), seconds=0) == replace(second, seconds=0)
    assert not list(folder.expectations.glob(".*"))


def test_many_records_are_counted_in_full_and_sampled(tmp_path: Path) -> None:
    evaluation = evaluate(tell(tmp_path / "run-1", replace(CLEAN, deliver=list(range(30, RECORDS)))))
    lost = next(result for result in evaluation.results if result.expectation == "expect_no_record_to_be_lost")
    assert (lost.unexpected, len(lost.sample)) == (30, 20)


def test_an_aborted_run_without_its_files_does_not_hold(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run-1")
    verdict = unjudged(CLEAN.spec, RunOutcome.ABORTED, "stopped by hand")
    write_atomically(folder.verdict, json.dumps(verdict, default=str))
    suite_spec(CLEAN.spec).write(folder)
    evaluation = evaluate(folder)
    assert not evaluation.success
    assert any("Table with name drain does not exist" in error for error in evaluation.errors)
    assert disagreement_with(as_of(verdict), evaluation) == (None, None)


def test_without_a_verdict_there_is_nothing_to_evaluate(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=r"verdict\.json is missing"):
        evaluate(RunFolder.create(tmp_path / "run-1"))


def test_a_damaged_reconciliation_is_named(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", CLEAN)
    folder.reconciliation.write_bytes(b"not parquet")
    with pytest.raises(EvidenceError, match=r"reconciliation\.parquet"):
        evaluate(folder)


def test_an_expectation_that_cannot_be_evaluated_is_an_error_and_no_failure_of_the_run(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", CLEAN)
    folder.drain.unlink()
    folder.schedule.unlink()
    evaluation = evaluate(folder)
    verdict = folder.read_json(folder.verdict)
    assert not evaluation.success
    assert {error.split(":")[0] for error in evaluation.errors} == {
        "expect_no_record_to_be_lost",
        "expect_drain_to_reach_the_end",
        "expect_every_fault_to_have_evidence",
        "expect_every_fault_to_be_healed",
        "expect_output_after_every_fault",
    }
    assert all("does not exist" in error for error in evaluation.errors)
    assert "5 expectations could not be evaluated" in str(disagreement_with(as_of(verdict), evaluation)[1])


def test_without_a_reconciliation_there_is_nothing_to_agree_with(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", CLEAN)
    folder.reconciliation.unlink()
    evaluation = evaluate(folder)
    assert evaluation.success
    assert "reconciliation.parquet is missing" in str(disagreement_with(as_of(folder.read_json(folder.verdict)), evaluation)[0])


def _forget_the_records(folder: RunFolder) -> None:
    table = pq.read_table(folder.reconciliation)
    pq.write_table(table.filter([row == "partition" for row in table["row"].to_pylist()]), folder.reconciliation)


def _forget_the_journal(folder: RunFolder) -> None:
    folder.journal.path.write_text("")


@pytest.mark.parametrize(
    ("story", "outcome", "damage", "said"),
    [
        (CLEAN, "FAILED", lambda folder: None, "every expectation holds"),
        (CLEAN, "INCONCLUSIVE", lambda folder: None, "every expectation holds"),
        (replace(CLEAN, deliver=DOUBLED), "PASSED", lambda folder: None, "expect_no_record_to_be_duplicated (observed: 1 DUPLICATED)"),
        (replace(AT_LEAST_ONCE, deliver=DOUBLED), "PASSED", _forget_the_records, "only the expectation suites name DUPLICATED 0/3"),
        (CLEAN, "PASSED", _forget_the_journal, "expect_every_fault_to_have_evidence"),
    ],
)
def test_a_verdict_that_the_evidence_does_not_bear_out_is_found(
    tmp_path: Path, story: Story, outcome: str, damage: Callable[[RunFolder], None], said: str
) -> None:
    folder = tell(tmp_path / "run-1", story)
    damage(folder)
    verdict = {**folder.read_json(folder.verdict), "outcome": outcome}
    write_atomically(folder.verdict, json.dumps(verdict))
    assert said in str(disagreement_with(as_of(verdict), evaluate(folder))[0])


def test_a_check_told_again_replaces_the_first(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", replace(CLEAN, checks=None))
    folder.journal.append(InjectionEvidence(injection="kill_executor-1", checks=(EvidenceCheck.from_json(GOOD_CHECK),)))
    with database.building(folder.path) as connection:
        rows = connection.execute("SELECT kind, statement, passed FROM checks ORDER BY kind").fetchall()
    assert rows == [("evidence", GOOD_CHECK["check"], True), ("heal", HEALED_CHECK["check"], True)]


# What a browser would fetch by itself, or follow when asked to, from somewhere else.
REMOTE = re.compile(
    r"""(?:\b(?:src|href|srcset|action|poster|data)\s*=\s*["']?\s*|url\(\s*["']?|@import\s+["']?)(?:https?:|ftp:|//)""", re.IGNORECASE
)
RUNS_SCRIPTS = re.compile(r"<script|<iframe|<object|<embed|<link[^>]+stylesheet|\son[a-z]+\s*=|javascript:", re.IGNORECASE)


def test_the_data_docs_hold_no_remote_asset_no_script_and_no_trace_of_the_project_id(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", replace(CLEAN, deliver=DOUBLED))
    evaluation = evaluate(folder)
    site = folder.expectations / "data_docs"
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file())
    assert len(pages) == 3
    assert all(page.endswith(".html") for page in pages)
    identity = re.search(r"data_context_id: (\S+)", (folder.expectations / "gx/gx/great_expectations.yml").read_text())
    assert identity is not None
    for page in pages:
        text = (site / page).read_text()
        assert not REMOTE.search(text), page
        assert not RUNS_SCRIPTS.search(text), page
        assert identity[1] not in text
        assert "default-src 'none'" in text
    for page in pages:
        for link in re.findall(r'href="([^"#:]+)"', (site / page).read_text()):
            found = (site / page).parent.joinpath(link).resolve()
            assert found.is_file() or found == folder.report, f"{page} links to {link}"
    assert "1 DUPLICATED" in (site / pages[-1]).read_text()
    assert evaluation.data_docs == "expectations/data_docs/index.html"


def test_what_a_record_says_does_not_become_markup_in_the_data_docs(tmp_path: Path) -> None:
    evil = '<script>alert(1)</script><img src="http://evil.example/x" onerror=alert(2)>'
    folder = tell(tmp_path / "run-1", replace(CLEAN, checks=[{"check": evil, "passed": False, "detail": evil}], drained=False))
    folder.drain.write_text(json.dumps({"complete": False, "reason": evil, "records": RECORDS}))
    manifest.write(folder)
    verdict = judge(folder, CLEAN.spec).verdict.to_json()
    write_atomically(folder.verdict, json.dumps(verdict, default=str))
    evaluate(folder)
    for path in (folder.expectations / "data_docs").rglob("*.html"):
        text = path.read_text()
        assert "<script" not in text
        assert "<img" not in text


@pytest.mark.parametrize(
    ("page", "rewritten"),
    [
        ('<body><a href="https://x.example">out</a></body>', "<span>out</span>"),
        ('<a href="//x.example">out</a>', "<span>out</span>"),
        ('<a href="javascript:alert(1)">out</a>', "<span>out</span>"),
        ('<a href="../index.html" onclick="x()">in</a>', '<a href="../index.html">in</a>'),
        ('<p style="background:url(http://x.example)">p</p>', "<p>p</p>"),
        ("<td>a &lt;b&gt;</td>", "<td>a &lt;b&gt;</td>"),
        ("<style>@import 'x'</style><script>s</script><p>kept</p>", "<p>kept</p>"),
        ('<i class="fas fa-times"></i>', '<span class="mark fails"><span aria-hidden="true">✗</span> fails</span>'),
        (
            '<a data-toggle="collapse" href="#x">Show more...</a><div class="collapse"><b>in</b></div>',
            '<details><summary>Show more</summary><div class="collapse"><b>in</b></div></details>',
        ),
        ("<ul><li>unclosed", "<ul><li>unclosed</li></ul>"),
    ],
)
def test_a_page_is_rewritten_to_what_a_browser_need_not_fetch(page: str, rewritten: str) -> None:
    assert rewrite(page) == rewritten


def test_a_worker_imports_ahead_and_then_evaluates_without_leaving_the_machine(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", CLEAN)
    with EvaluationWorker() as worker:
        evaluation = worker.evaluate(folder)
    assert evaluation.success


def test_a_worker_hands_on_what_is_wrong_with_the_evidence(tmp_path: Path) -> None:
    with EvaluationWorker() as worker, pytest.raises(EvidenceError, match=r"verdict\.json is missing"):
        worker.evaluate(RunFolder.create(tmp_path / "run-1"))


def test_a_worker_that_died_is_told(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", CLEAN)
    before = {child.pid for child in psutil.Process().children()}
    with EvaluationWorker() as worker:
        for child in psutil.Process().children():
            if child.pid not in before:
                child.kill()
        with pytest.raises(WorkerError, match=r"ended with code -9 and without an answer"):
            worker.evaluate(folder)


def test_a_worker_that_is_too_slow_is_ended(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", CLEAN)
    with EvaluationWorker(timeout_s=0.2) as worker, pytest.raises(WorkerError, match="did not end within"):
        worker.evaluate(folder)


def test_an_evaluation_opens_no_connection(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", CLEAN)
    seen: list[tuple[str, Any]] = []
    watching = True

    def watch(name: str, arguments: Any) -> None:
        if watching and name in ("socket.connect", "socket.getaddrinfo"):
            seen.append((name, arguments))

    sys.addaudithook(watch)  # cannot be taken away again, only told to look away
    try:
        assert evaluate(folder).success
    finally:
        watching = False
    assert seen == []


def test_the_package_imports_without_great_expectations() -> None:
    check = (
        "import sys; from streamproof.suites import evaluate, worker; from streamproof.report import report; "
        "assert 'great_expectations' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", check], check=True, timeout=30)


def test_the_report_of_a_failed_run_names_the_record_the_fault_and_how_to_reproduce(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", replace(CLEAN, deliver=DOUBLED))
    evaluate(folder)
    text = render(folder).read_text()
    for said in (
        "FAILED",
        "two_phase_commit broke exactly-once: 1 DUPLICATED.",
        "record 0/3",
        "delivered 3 times",
        GOOD_CHECK["check"],
        HEALED_CHECK["check"],
        "1 of 1 checks passed",
        "pid 4711",
        "seconds since 2026-03-01 11:59:53 UTC",
    ):
        assert escape(str(said), quote=True).replace("&#x27;", "&#39;") in text
    assert '<code>streamproof run experiment.yaml <span class="whole">--seed 7</span></code>' in text
    assert 'id="missing-title"' not in text
    assert not REMOTE.search(text)
    assert not RUNS_SCRIPTS.search(without_own_scripts(text))


def without_own_scripts(text: str) -> str:
    """A report runs two scripts, its policy names just them, and what else is in a <script> is data. Returns the rest of it."""
    scripts = re.findall(r"<script type=\"module\">(.*?)</script>", text, re.DOTALL)
    assert scripts == [vega.library(), vega.START]
    assert re.search(r"script-src ([^;\"]+)\">", text)[1] == vega.allowed(*scripts)  # type: ignore[index]
    return re.sub(r"<script type=\"(?:module|application/json)\">.*?</script>", "", text, flags=re.DOTALL)


def test_a_report_whose_scripts_were_damaged_would_not_run_them() -> None:
    assert vega.allowed("one") != vega.allowed("two")
    assert vega.allowed("one", "two").split() == [vega.allowed("one"), vega.allowed("two")]


def test_the_library_is_made_once_and_asks_nobody_for_anything(tmp_path: Path) -> None:
    made = vega.library(tmp_path)
    (kept,) = tmp_path.iterdir()
    kept.write_text("kept")
    assert vega.library(tmp_path) == "kept"
    assert "</script" not in made
    assert "<!--" not in made
    assert len(made) < 1_000_000


def test_the_report_shows_some_records_of_each_anomaly_and_all_are_beside_it(tmp_path: Path) -> None:
    story = replace(CLEAN, deliver=[number for number in range(RECORDS) if number != 5] + [3, 4])
    folder = tell(tmp_path / "run-1", story)
    text = render(folder).read_text()
    assert "record 0/5 " in text
    assert 'data-search="records"' in text
    told = (folder.path / ANOMALIES).read_text().splitlines()
    assert [line.split(",")[:3] for line in told[1:]] == [['"LOST"', "0", "5"], ['"DUPLICATED"', "0", "3"], ['"DUPLICATED"', "0", "4"]]


def test_the_samples_of_a_common_anomaly_leave_room_for_a_rare_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproof.report.report.SHOWN_RECORDS", 2)
    assert SHOWN_RECORDS > 2
    folder = tell(tmp_path / "run-1", replace(CLEAN, deliver=[*range(RECORDS - 1), *range(20)]))
    text = render(folder).read_text()
    assert text.count(">DUPLICATED</span></td>") == 2
    assert text.count(">LOST</span></td>") == 1
    assert "3 of 21" in text


def test_the_report_tells_of_the_steps_before_it_and_when_a_process_was_created(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", CLEAN)
    folder.journal.append(StageStarted(stage="restore", pid=1))
    folder.journal.append(StageFinished(stage="restore", seconds=0.5))
    folder.journal.append(StageStarted(stage="report", pid=1))
    verdict = folder.read_json(folder.verdict)
    verdict["injections"][0]["target"] = {"executor": 0, "then": None, "jvm_pid": 4711, "jvm_created": T0.timestamp()}
    write_atomically(folder.verdict, json.dumps(verdict))
    page = render(folder).read_text()
    assert "<td>restore</td><td>finished</td>" in page
    assert "<td>report</td>" not in page
    assert "Target: executor 0, jvm_pid 4711, jvm_created 12:00:00 UTC." in page


def test_the_report_has_the_whole_experiment(tmp_path: Path) -> None:
    assert ">name: story\n</pre>" in render(tell(tmp_path / "run-1", CLEAN)).read_text()


@pytest.mark.parametrize("outcome", [RunOutcome.ABORTED, RunOutcome.ERROR])
def test_the_report_of_a_run_that_ended_early_says_what_is_missing(tmp_path: Path, outcome: RunOutcome) -> None:
    folder = RunFolder.create(tmp_path / "run-1")
    folder.journal.append(RunCreated(run="run-1", seed=7))
    folder.journal.append(StageStarted(stage="prepare", pid=1))
    folder.journal.append(StageFailed(stage="prepare", error="no broker"))
    folder.journal.append(InjectionStarted(injection="add_partitions-1", fault="add_partitions", target={}, parameters={}))
    write_atomically(folder.verdict, json.dumps(unjudged(CLEAN.spec, outcome, "stopped by hand"), default=str))
    text = render(folder).read_text()
    for said in (outcome, "stopped by hand", "progress.jsonl is missing", "reconciliation.parquet is missing", "failed: no broker"):
        assert said in text
    for said in ("expectations/results.json is missing", "no evidence was recorded", "no heal was recorded", "not reached"):
        assert said in text


def test_the_report_of_an_empty_folder_is_still_a_page(tmp_path: Path) -> None:
    text = render(RunFolder.create(tmp_path / "run-1")).read_text()
    assert "nobody judged this run" in text
    assert "There is nothing to draw" in text


def test_the_report_stops_where_the_journal_is_damaged(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", CLEAN)
    folder.journal.path.write_text("{broken\n")
    assert "where its file is damaged" in render(folder).read_text()


def test_what_the_evidence_says_does_not_become_markup_in_the_report(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    folder = tell(tmp_path / "run-1", replace(CLEAN, checks=[{"check": evil, "passed": False, "detail": evil}]))
    folder.journal.append(InjectionStarted(injection=evil, fault=evil, target={evil: evil}, parameters={evil: [evil]}))
    folder.journal.append(DriverExited(start=evil, pid=1, code=1, reason=evil))
    folder.journal.append(PhaseBegan(phase=evil))
    folder.journal.append(FailpointFired(failpoint=evil, batch=evil))
    verdict = folder.read_json(folder.verdict)
    changed = {"run": evil, "reason": evil, "pipeline": evil, "versions": {evil: evil}, "seed": evil, "outcome": evil, "experiment": evil}
    write_atomically(folder.verdict, json.dumps({**verdict, **changed}))
    text = without_own_scripts(render(folder).read_text())
    assert "<script" not in text
    assert "<img" not in text
    assert ' onerror="' not in text


def test_the_report_tells_what_a_fault_cost_and_beside_the_run_without_it(tmp_path: Path) -> None:
    plain = tell(tmp_path / "plain", replace(CLEAN, planned=()))
    folder = tell(tmp_path / "run-1", CLEAN)
    attach(folder, plain, Verdict.read(plain))
    verdict = {**judge(folder, CLEAN.spec).verdict.to_json(), "notes": ["the testbed was built anew <on purpose>"]}
    write_atomically(folder.verdict, json.dumps(verdict, default=str))
    text = re.sub(r"\s+", " ", render(folder).read_text())
    # Struck at 11.1 s and healed at 13 s; the batches ended at 5, 15 and 25 s, and the last record was sent first.
    name, *figures = ("kill_executor-1", "3.9 s", "10.0 s", "10.0 s", "4 records", "13.9 s")
    assert "".join([f"<td>{name}</td>", *(f'<td class="right">{figure}</td>' for figure in figures)]) in text
    assert "during (impact)" in text
    assert "1.00 ×" in text
    assert str(plain.path) in text
    assert "the testbed was built anew &lt;on purpose&gt;" in text
    assert "backlog: records sent, not yet to be read" in text
    assert "At most 7 records were waiting, at 11.6 s." in text


def test_a_report_without_a_drain_says_that_the_backlog_is_not_known(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", CLEAN)
    folder.drain.unlink()
    text = render(folder).read_text()
    assert "How many records were waiting when is not known" in text
    assert "backlog: records" not in text


def test_the_chart_counts_a_batch_that_was_committed_again_once() -> None:
    line: dict[str, Any] = {
        "batch": 4,
        "start": 1,
        "rows": 10,
        "started_at": at(0),
        "committed_at": at(1),
        "from": {"0": 0},
        "until": {"0": 10},
    }
    again = {**line, "start": 2, "started_at": at(2), "committed_at": at(3)}
    shown = timeline([], [line, again])
    assert shown is not None
    assert [batch.committed for batch in shown.batches] == [10, 10]
    assert [batch.records_per_s for batch in shown.batches] == [10.0, 10.0]


def test_an_injection_that_was_not_healed_is_shaded_to_the_end() -> None:
    events = [
        DriverStarted(at=at(0), start=1),
        InjectionStarted(at=at(4), injection="network_latency-1", fault="network_latency"),
        PhaseBegan(at=at(9), phase="done"),
    ]
    shown = timeline(events, [])
    assert shown is not None
    assert shown.faults == (Span("network_latency-1", 4.0, 9.0),)


def test_the_chart_has_a_shaded_window_for_each_fault_in_every_panel(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", replace(CLEAN, planned=("kill_executor-1", "kill_executor-2")))
    shown = timeline(folder.journal.events(), list(read_json_lines(folder.progress)), read_flow(folder))
    assert shown is not None
    drawn = charts.draw(shown)
    described = json.loads(drawn.description)
    panels = {panel["name"]: panel for panel in described["vconcat"]}
    assert list(panels) == ["output", "backlog", "batches", "driver"]
    for name, panel in panels.items():
        (data,) = [layer["data"]["name"] for layer in panel["layer"] if layer.get("name", "").startswith(f"{name}_faults_")]
        assert described["datasets"][data] == [{"fault": fault.name, "from": fault.start_s, "to": fault.end_s} for fault in shown.faults]
    for picture in (drawn.wide, drawn.narrow):
        assert picture.count('fill="var(--hatch)"') == 8
        assert "kill_executor-2" in picture
        assert "#000" not in picture


def _drawn(node: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """What Vega drew for the marks of this name."""
    mine = [dict(item) for item in node["items"]] if re.fullmatch(rf"{name}_\d+_marks", node.get("name") or "") else []
    return mine + [found for child in node.get("items", []) for found in _drawn(child, name)]


def test_vega_draws_the_window_of_a_kill_where_it_was(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", CLEAN)
    shown = timeline(folder.journal.events(), list(read_json_lines(folder.progress)), read_flow(folder))
    assert shown is not None
    described = json.loads(charts.draw(shown).description)
    graph = vl_convert.vegalite_to_scenegraph(described)["scenegraph"]
    (fault,) = shown.faults
    assert (fault.start_s, fault.end_s) == pytest.approx((18.1, 20.0)), "the driver started 7 s before the first phase"
    for panel in ("output", "backlog", "batches", "driver"):
        (window,) = _drawn(graph, f"{panel}_faults")
        (steady,) = [band for band in _drawn(graph, f"{panel}_phases") if band["x"] == pytest.approx(7 * 300 / shown.end_s, abs=0.5)]
        per_second = steady["width"] / 10
        assert window["x"] == pytest.approx(fault.start_s * per_second, abs=0.5)
        assert window["width"] == pytest.approx((fault.end_s - fault.start_s) * per_second, abs=0.5)
    assert len(_drawn(graph, "batch_bars")) == 3


def test_what_a_fault_is_called_cannot_leave_the_charts_description() -> None:
    events = [InjectionStarted(at=at(0), injection="</script><script>alert(1)</script>", fault="x")]
    shown = timeline(events, [])
    assert shown is not None
    assert "<" not in charts.draw(shown).description


def test_the_output_of_a_run_is_all_of_it(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", CLEAN)
    shown = timeline(folder.journal.events(), list(read_json_lines(folder.progress)), read_flow(folder))
    assert shown is not None
    assert sum(rate for _, rate in shown.output) * shown.bin_s == pytest.approx(RECORDS)


@given(st.floats(0.01, 1e6))
def test_a_run_has_no_more_stretches_than_fit_and_not_many_fewer(end_s: float) -> None:
    assert BINS / 2.6 <= end_s / _bin(end_s) <= BINS * 1.002


def test_a_run_whose_times_lie_measures_nothing_and_still_has_a_report(tmp_path: Path) -> None:
    folder = tell(tmp_path / "run-1", replace(CLEAN, lies=RECORDS))
    verdict = folder.read_json(folder.verdict)
    assert (verdict["untimed"], verdict["unordered"]) == (RECORDS, RECORDS)
    assert verdict["anomalies"]["OFFSET_AHEAD"] == 0
    assert [verdict[name] for name in ("recovery_s", "caught_up_s", "longest_gap_s", "output_s")] == [None] * 4
    assert {figures["records"] for figures in verdict["phases"].values()} == {None}
    assert "INCONCLUSIVE" in render(folder).read_text()
