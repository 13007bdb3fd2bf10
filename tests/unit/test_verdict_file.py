"""``verdict.json``: it is read back as it was written, older ones too, and its outcome follows from what it holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.journal import Aborted, Event, Restored, StageFailed, StageFinished, TestbedTaken
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.decide import RunOutcome, decide
from streamproof.verdict.ending import Ending
from streamproof.verdict.judge import judge
from streamproof.verdict.verdict import OwnSuite, Verdict, decided, ending
from tests.support.checkout import ROOT
from tests.support.histories import SPEC, Story, unjudged

STOPPED = Ending(aborted="stopped by SIGINT")
BROKE = Ending(failed_stage="stage drain failed: no answer")
SUITE = OwnSuite(name="own: mine", expectations=2, failed=("No carrier is null",), failures=("No carrier is null does not hold (3 rows)",))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return Story().write(tmp_path / "run")


@pytest.fixture
def verdict(folder: RunFolder) -> Verdict:
    return judge(folder, SPEC).verdict


def test_what_is_written_is_read_back(folder: RunFolder, verdict: Verdict) -> None:
    verdict.write(folder)
    assert Verdict.read(folder) == verdict
    assert json.loads(folder.verdict.read_text()) == verdict.to_json()


def test_the_file_begins_with_what_a_reader_looks_for(verdict: Verdict) -> None:
    assert list(verdict.to_json())[:6] == ["schema", "run", "experiment", "outcome", "as_expected", "reason"]


def test_evidence_checks_are_objects_in_the_file(verdict: Verdict) -> None:
    (injection,) = verdict.to_json()["injections"]
    assert injection["evidence"] == [{"check": "the process is gone", "passed": True, "detail": "pid 1"}]
    assert (injection["took_effect"], injection["healed"]) == (True, True)


def test_a_run_whose_records_were_not_judged_has_every_key_too(verdict: Verdict) -> None:
    found = unjudged(SPEC, RunOutcome.ABORTED, "stopped")
    assert set(found) == set(verdict.to_json())
    assert (found["sent"], found["anomalies"], found["delivered"]) == ({}, {}, None)
    assert Verdict.from_json(found).to_json() == found


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "mutation" / "runs").glob("*/verdict.json")), ids=lambda path: path.parent.name)
def test_a_verdict_of_an_older_version_is_read(path: Path) -> None:
    stored = Verdict.read(RunFolder(path.parent))
    assert stored.outcome is RunOutcome(json.loads(path.read_text())["outcome"])
    assert stored.sent is not None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a verdict (expected an object, came list)"),
        ("{}", "is not a verdict (run: Field required)"),
        (json.dumps({**unjudged(SPEC, RunOutcome.PASSED, ""), "outcome": "SPLENDID"}), "is not a verdict (outcome: "),
        (json.dumps({**unjudged(SPEC, RunOutcome.PASSED, ""), "injections": 5}), "is not a verdict (injections: "),
        (json.dumps({**unjudged(SPEC, RunOutcome.PASSED, ""), "anomalies": {"EVAPORATED": 1}}), "is not a verdict (anomalies.EVAPORATED"),
    ],
)
def test_what_is_no_verdict_is_an_error_that_names_the_file(folder: RunFolder, content: str, message: str) -> None:
    folder.verdict.write_text(content)
    with pytest.raises(EvidenceError) as raised:
        Verdict.read(folder)
    assert f"{folder.verdict} {message}" in str(raised.value)


# --- the outcome follows from what the verdict holds ------------------------------------------------------------------------------------


def _lossy() -> Story:
    story = Story()
    story.histories.drop([(0, 22)])
    return story


@pytest.mark.parametrize("story", [Story(), _lossy(), Story().without("injection_evidence")], ids=["passed", "failed", "inconclusive"])
def test_a_stored_verdict_is_decided_again_to_the_same(tmp_path: Path, story: Story) -> None:
    folder = story.write(tmp_path / "run")
    judge(folder, SPEC).verdict.write(folder)
    stored = Verdict.read(folder)
    decision = decide(stored.facts(Ending()))
    assert (decision.outcome, decision.reason) == (stored.outcome, stored.reason)
    assert decided(stored) == stored


def test_how_the_run_ended_overrules_its_records_and_keeps_them(verdict: Verdict) -> None:
    for end, outcome, reason in ((STOPPED, "ABORTED", STOPPED.aborted), (BROKE, "ERROR", BROKE.failed_stage)):
        found = decided(verdict, end)
        assert (found.outcome, found.reason, found.as_expected) == (outcome, reason, False)
        assert found.anomalies == verdict.anomalies


def test_the_suite_says_what_the_run_is_without_it(verdict: Verdict) -> None:
    found = decided(verdict.model_copy(update={"suite": SUITE}))
    assert (found.outcome, found.reason) == ("FAILED", "own: mine: No carrier is null does not hold (3 rows)")
    assert found.suite is not None
    assert (found.suite.outcome, found.suite.reason) == ("PASSED", verdict.reason)
    assert decided(found) == found


def test_a_suite_of_an_older_verdict_has_its_expectations_only(verdict: Verdict) -> None:
    found = decided(verdict.model_copy(update={"suite": SUITE.model_copy(update={"failures": ()})}))
    assert found.reason == "own: mine: No carrier is null does not hold"


def test_a_run_that_is_judged_again_keeps_what_the_expectations_said(folder: RunFolder, verdict: Verdict) -> None:
    stored = decided(verdict.model_copy(update={"disagreement": "only one judge names 0/5", "suite": SUITE}))
    again = decided(judge(folder, SPEC).verdict.with_expectations(stored))
    assert again == stored
    assert verdict.with_expectations(None) == verdict


# --- how a run ended --------------------------------------------------------------------------------------------------------------------

FAILED = StageFailed(stage="drain", error="no answer")
TAKEN, STOP = TestbedTaken(), Aborted(reason="stopped by SIGINT")


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([], Ending()),
        ([STOP], STOPPED),
        ([STOP, Restored()], STOPPED),
        ([TAKEN, Restored(), STOP], Ending()),
        ([STOP, Restored(), Aborted(reason="again")], STOPPED),
        ([TAKEN, Restored(), TAKEN, STOP, Restored()], STOPPED),
        ([FAILED], BROKE),
        ([FAILED, StageFinished(stage="drain", seconds=1.0)], Ending()),
        ([FAILED, StageFailed(stage="run_pipeline", error="it ended"), StageFinished(stage="verify", seconds=1.0)], BROKE),
        ([FAILED, STOP], replace(BROKE, aborted=STOPPED.aborted)),
    ],
)
def test_the_journal_says_how_a_run_ended(tmp_path: Path, events: list[Event], found: Ending) -> None:
    folder = RunFolder.create(tmp_path / "run")
    for event in events:
        folder.journal.append(event)
    assert Ending.of(folder.journal) == found


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        ({"outcome": RunOutcome.ABORTED, "reason": "stopped by SIGINT"}, STOPPED),
        ({"outcome": RunOutcome.ERROR, "reason": "stage drain failed: no answer"}, BROKE),
        ({"outcome": RunOutcome.ERROR, "reason": "x", "disagreement": "x"}, Ending()),
        ({"outcome": RunOutcome.FAILED, "reason": "1 LOST"}, Ending()),
    ],
)
def test_where_the_journal_does_not_say_the_stored_verdict_does(
    folder: RunFolder, verdict: Verdict, stored: dict[str, Any], found: Ending
) -> None:
    assert ending(folder, verdict.model_copy(update=stored)) == found
    assert ending(folder, None) == Ending()
    folder.journal.append(StageFailed(stage="drain", error="no answer"))
    assert ending(folder, verdict.model_copy(update=stored)) == BROKE


def test_anomalies_are_named_by_their_type(verdict: Verdict) -> None:
    assert set(verdict.anomalies) == {Anomaly.LOST, Anomaly.DUPLICATED, Anomaly.PHANTOM, Anomaly.CORRUPTED, Anomaly.OFFSET_AHEAD}
