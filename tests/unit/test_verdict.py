"""The verdict's rules, in their order: each test tells the story of a good run and changes one thing of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.outcome import Outcome
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee
from streamproof.verdict.judge import RunSpec, judge
from streamproof.verdict.reconciliation import RECONCILIATION, write_reconciliation
from tests.support.histories import INJECTION, SENT_S, SPEC, Story, at

AT_LEAST_ONCE = replace(SPEC, strategy="checkpoint", guarantee=Guarantee.AT_LEAST_ONCE)
CONTROL = replace(AT_LEAST_ONCE, expected=(Anomaly.DUPLICATED,))
NOT_HELD = {"check": "the master dropped it", "passed": False, "detail": "RUNNING"}


@pytest.fixture
def verdict(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def judged(story: Story, spec: RunSpec = SPEC) -> dict[str, Any]:
        return judge(story.write(tmp_path / "run"), spec).verdict.to_json()

    return judged


Judged = Callable[..., dict[str, Any]]


def _event(story: Story, name: str) -> dict[str, Any]:
    return next(event for event in story.events if event["event"] == name)


# --- PASSED -------------------------------------------------------------------------------------------------------------------------


def test_a_run_that_lost_nothing_under_a_fault_with_evidence_passes(verdict: Judged) -> None:
    found = verdict(Story())
    assert (found["outcome"], found["as_expected"]) == ("PASSED", True)
    assert found["reason"] == "two_phase_commit kept exactly-once for 60 acknowledged records"
    assert found["anomalies"] == {"LOST": 0, "DUPLICATED": 0, "PHANTOM": 0, "CORRUPTED": 0, "OFFSET_AHEAD": 0}
    assert found["forbidden"] == ["CORRUPTED", "DUPLICATED", "LOST", "OFFSET_AHEAD", "PHANTOM"]


def test_an_anomaly_that_the_guarantee_allows_passes_and_is_told(verdict: Judged) -> None:
    story = Story()
    story.histories.double([(0, 1), (0, 2)])
    found = verdict(story, AT_LEAST_ONCE)
    assert found["outcome"] == "PASSED"
    assert "2 DUPLICATED, which it allows" in found["reason"]


def test_a_run_without_a_planned_fault_needs_no_evidence_of_one(verdict: Judged) -> None:
    story = Story().without("injection_started", "injection_injected", "injection_evidence", "injection_healed")
    assert verdict(story, replace(SPEC, planned=()))["outcome"] == "PASSED"


def test_a_negative_control_that_bit_passes_and_says_so(verdict: Judged) -> None:
    story = Story()
    story.histories.double([(0, 1)])
    found = verdict(story, CONTROL)
    assert found["outcome"] == "PASSED"
    assert "the negative control was caught: 1 DUPLICATED, as expected" in found["reason"]


# --- FAILED -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("anomaly", "damage"),
    [
        ("LOST", lambda histories: histories.drop([(0, 5)])),
        ("DUPLICATED", lambda histories: histories.double([(0, 5)])),
        ("PHANTOM", lambda histories: histories.settle([(0, 5)], Outcome.REJECTED)),
        ("CORRUPTED", lambda histories: histories.change((0, 5), crc=1)),
    ],
)
def test_one_forbidden_anomaly_fails_the_run(verdict: Judged, anomaly: str, damage: Callable[[Any], None]) -> None:
    story = Story()
    damage(story.histories)
    found = verdict(story)
    assert (found["outcome"], found["as_expected"]) == ("FAILED", False)
    assert found["reason"] == f"two_phase_commit broke exactly-once: 1 {anomaly}"
    assert found["anomalies"][anomaly] == 1


def test_a_forbidden_anomaly_fails_a_run_however_much_else_was_not_shown(verdict: Judged) -> None:
    story = Story(events=[], progress=[], drain={"complete": False, "reason": "cut"})
    story.histories.double([(0, 5)])
    assert verdict(story)["outcome"] == "FAILED"


def test_a_negative_control_that_loses_too_fails(verdict: Judged) -> None:
    story = Story()
    story.histories.double([(0, 1)])
    story.histories.drop([(0, 2)])
    assert verdict(story, CONTROL)["reason"] == "checkpoint broke at-least-once: 1 LOST"


# --- INCONCLUSIVE -------------------------------------------------------------------------------------------------------------------


def _inconclusive(found: dict[str, Any], reason: str) -> None:
    assert (found["outcome"], found["as_expected"]) == ("INCONCLUSIVE", False)
    assert found["reason"] == reason


def test_lost_records_do_not_count_while_the_drain_is_not_complete(verdict: Judged) -> None:
    story = Story(drain={"complete": False, "reason": "an open transaction holds back partitions [1]"})
    story.histories.drop([(0, 5)])
    expected = "the drain did not reach the end of the output: an open transaction holds back partitions [1]"
    _inconclusive(verdict(story), expected)


def test_an_injection_without_evidence_is_not_enough(verdict: Judged) -> None:
    _inconclusive(verdict(Story().without("injection_evidence")), f"{INJECTION} did not take effect (no evidence was recorded)")


def test_an_injection_with_an_empty_list_of_evidence_is_not_enough(verdict: Judged) -> None:
    story = Story()
    _event(story, "injection_evidence")["checks"] = []
    _inconclusive(verdict(story), f"{INJECTION} did not take effect (no evidence was recorded)")


def test_one_check_that_did_not_pass_is_named(verdict: Judged) -> None:
    story = Story()
    evidence = _event(story, "injection_evidence")
    evidence["checks"] = [*evidence["checks"], NOT_HELD]
    _inconclusive(verdict(story), f"{INJECTION} did not take effect (not shown: the master dropped it)")


def test_an_injection_that_failed_says_why(verdict: Judged) -> None:
    story = Story().without("injection_injected", "injection_evidence")
    story.events.append({"at": at(6), "event": "injection_failed", "injection": INJECTION, "error": "no executor held a task"})
    _inconclusive(verdict(story), f"{INJECTION} did not take effect (no executor held a task)")


def test_a_planned_injection_that_was_never_tried_is_missed(verdict: Judged) -> None:
    found = verdict(Story(), replace(SPEC, planned=(INJECTION, "network_latency-1")))
    _inconclusive(
        found, "network_latency-1 did not take effect (the journal does not say that it was injected); network_latency-1 was not healed"
    )


def test_an_injection_that_was_not_healed_is_named(verdict: Judged) -> None:
    _inconclusive(verdict(Story().without("injection_healed")), f"{INJECTION} was not healed")


def test_a_heal_that_does_not_read_back_is_no_heal(verdict: Judged) -> None:
    story = Story()
    _event(story, "injection_healed")["checks"] = [{"check": "no toxic is left", "passed": False, "detail": "latency"}]
    _inconclusive(verdict(story), f"{INJECTION} was not healed")


@pytest.mark.parametrize(("phase", "number"), [("steady", 0), ("recovery", 3)])
def test_a_phase_without_a_micro_batch_is_named(verdict: Judged, phase: str, number: int) -> None:
    story = Story()
    del story.progress[number]
    _inconclusive(verdict(story), f"no micro-batch was committed in the {phase} phase")


def test_a_phase_that_never_began_is_named(verdict: Judged) -> None:
    story = Story()
    story.events = [event for event in story.events if event.get("phase") not in ("recovery", "done")]
    _inconclusive(verdict(story), "no micro-batch was committed in the recovery phase")


def test_nothing_acknowledged_proves_nothing(verdict: Judged) -> None:
    story = Story()
    story.histories.settle([row.id for row in story.histories.sent], Outcome.INDETERMINATE)
    _inconclusive(verdict(story), "nothing was acknowledged, so nothing could be lost")


def test_a_negative_control_that_was_not_caught_is_inconclusive(verdict: Judged) -> None:
    _inconclusive(verdict(Story(), CONTROL), "the negative control was not caught: no DUPLICATED record was found")


def test_every_doubt_is_told(verdict: Judged) -> None:
    reason = verdict(Story(drain={"complete": False, "reason": "cut"}).without("injection_evidence", "injection_healed"))["reason"]
    assert reason.split("; ") == [
        "the drain did not reach the end of the output: cut",
        f"{INJECTION} did not take effect (no evidence was recorded)",
        f"{INJECTION} was not healed",
    ]


# --- what else it says --------------------------------------------------------------------------------------------------------------


def test_an_injection_is_told_as_the_journal_has_it(verdict: Judged) -> None:
    (injection,) = verdict(Story())["injections"]
    assert injection["fault"] == "kill_executor"
    assert injection["target"] == {"killed": [1]}
    assert injection["parameters"] == {"count": 1}
    assert (injection["injected_at"], injection["healed_at"]) == (at(5.5), at(7))
    assert (injection["took_effect"], injection["healed"]) == (True, True)


def test_recovery_is_the_time_from_the_injection_to_the_next_committed_output(verdict: Judged) -> None:
    found = verdict(Story())
    assert found["recovery_s"] == found["injections"][0]["first_output_s"] == 2.5
    assert found["longest_gap_s"] == 3.5


def test_each_phase_counts_the_batches_that_were_committed_in_it(verdict: Judged) -> None:
    phases = verdict(Story())["phases"]
    assert {name: (phase["batches"], phase["records"], phase["seconds"]) for name, phase in phases.items()} == {
        "steady": (1, 15, 3.0),
        "impact": (2, 30, 5.0),
        "recovery": (1, 15, 3.0),
    }


@pytest.mark.parametrize(("batch", "second", "batches"), [(1, 4, [2, 1, 1]), (3, 12, [1, 2, 1])], ids=["impact begins", "all is done"])
def test_a_commit_in_the_ms_in_which_a_phase_begins_belongs_to_the_one_before(
    verdict: Judged, batch: int, second: int, batches: list[int]
) -> None:
    """It was seen, and the phase began: there may be less than a millisecond between."""
    story = Story()
    story.progress[batch]["committed_at"] = at(second)
    assert [phase["batches"] for phase in verdict(story)["phases"].values()] == batches


# --- a function of the folder -------------------------------------------------------------------------------------------------------


def _damaged_story() -> Story:
    story = Story()
    story.histories.drop([(0, 7)])
    story.histories.double([(0, 8), (0, 9)])
    story.histories.change((0, 10), producer=None, sequence=None, crc=None)
    return story


def test_the_same_folder_gives_the_same_verdict_twice_and_is_not_touched(tmp_path: Path) -> None:
    folder = _damaged_story().write(tmp_path / "run")
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    one, two = judge(folder, SPEC), judge(folder, SPEC)
    assert json.dumps(one.verdict.to_json()) == json.dumps(two.verdict.to_json())
    assert one.table.equals(two.table)
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


def test_a_copy_of_the_folder_elsewhere_gives_the_same_verdict(tmp_path: Path) -> None:
    folder = _damaged_story().write(tmp_path / "run")
    shutil.copytree(folder.path, tmp_path / "elsewhere")
    one, two = judge(folder, SPEC), judge(RunFolder(tmp_path / "elsewhere"), SPEC)
    assert one.verdict == two.verdict
    assert one.table.equals(two.table)


def test_the_verdict_can_be_written_as_json(tmp_path: Path) -> None:
    found = judge(_damaged_story().write(tmp_path / "run"), SPEC).verdict.to_json()
    assert json.loads(json.dumps(found)) == json.loads(json.dumps(found, default=str))


def test_the_table_has_a_row_per_anomalous_record_and_one_per_partition(tmp_path: Path) -> None:
    folder = _damaged_story().write(tmp_path / "run")
    judgement = judge(folder, SPEC)
    rows = judgement.table.to_pylist()
    records = [(row["anomaly"], row["sequence"], row["copies"]) for row in rows if row["row"] == "record"]
    assert records == [("LOST", 7, 0), ("LOST", 10, 0), ("DUPLICATED", 8, 2), ("DUPLICATED", 9, 2), ("CORRUPTED", None, 1)]
    assert all(row["blame"] for row in rows if row["row"] == "record")
    assert sum(row["lost"] for row in rows if row["row"] == "partition") == 2
    assert judgement.table.schema.equals(RECONCILIATION, check_metadata=True)


def test_the_reconciliation_is_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = _damaged_story().write(tmp_path / "run")
    table = judge(folder, SPEC).table
    for _ in range(2):
        write_reconciliation(folder, table)
    assert [path.name for path in folder.path.glob("*reconciliation*")] == ["reconciliation.parquet"]


@pytest.mark.parametrize("missing", ["delivered/drain.json"])
def test_evidence_that_is_missing_is_an_error_that_names_it(tmp_path: Path, missing: str) -> None:
    folder = Story().write(tmp_path / "run")
    (folder.path / missing).unlink()
    with pytest.raises(EvidenceError, match=missing):
        judge(folder, SPEC)


# --- how much must be known ---------------------------------------------------------------------------------------------------------


def test_most_sends_without_an_outcome_prove_nothing(verdict: Judged) -> None:
    story = Story()
    unknown = [row.id for row in story.histories.sent if row.sequence % 10 != 9]
    story.histories.settle(unknown, Outcome.INDETERMINATE)
    story.histories.drop(unknown[::2])
    found = verdict(story)
    expected = "the outcome of 90.0% of the sends is unknown (INDETERMINATE), expected at most 5%: they may be lost unseen"
    _inconclusive(found, expected)
    assert found["sent"] == {"acked": 6, "rejected": 0, "indeterminate": 54, "indeterminate_share": 0.9}


@pytest.mark.parametrize(("unknown", "outcome"), [(3, "PASSED"), (4, "INCONCLUSIVE")])
def test_a_few_sends_without_an_outcome_are_no_obstacle_and_are_counted(verdict: Judged, unknown: int, outcome: str) -> None:
    story = Story()
    story.histories.settle([(0, number) for number in range(20, 20 + unknown)], Outcome.INDETERMINATE)
    found = verdict(story)
    assert found["outcome"] == outcome
    if outcome == "PASSED":
        assert found["reason"].endswith("57 acknowledged records (the outcome of 5.0% of the sends is unknown)")


@pytest.mark.parametrize("phase", ["steady", "impact", "recovery"])
def test_a_phase_in_which_nothing_was_acknowledged_shows_nothing(verdict: Judged, phase: str) -> None:
    story = Story()
    begins = {"steady": (1, 4), "impact": (4, 9), "recovery": (9, 99)}
    first, last = begins[phase]
    sent_in = [row for number, row in enumerate(story.histories.sent) if first <= 1 + number * SENT_S / 60 < last]
    story.histories.settle([row.id for row in sent_in], Outcome.REJECTED)
    story.histories.drop([row.id for row in sent_in])
    found = verdict(story)
    assert found["outcome"] == "INCONCLUSIVE"
    assert found["reason"].startswith(f"no acknowledged record was sent in the {phase} phase")


# --- what must be delivered, and when -----------------------------------------------------------------------------------------------

AT_MOST_ONCE = replace(SPEC, strategy="at_most_once", guarantee=Guarantee.AT_MOST_ONCE)
TOO_LATE = f"nothing was delivered after {INJECTION}: it came too late to show anything, or the job never came back"


def test_nothing_delivered_proves_nothing_even_where_all_may_be_lost(verdict: Judged) -> None:
    story = Story()
    story.histories.delivered = []
    _inconclusive(verdict(story, AT_MOST_ONCE), "nothing was delivered")


def test_a_job_that_delivered_nothing_after_the_fault_did_not_come_back(verdict: Judged) -> None:
    story = Story()
    story.histories.delivered = story.histories.delivered[:30]
    _inconclusive(verdict(story, AT_MOST_ONCE), TOO_LATE)
    assert verdict(story)["outcome"] == "FAILED", "what is forbidden is forbidden"


@pytest.mark.parametrize("spec", [SPEC, AT_LEAST_ONCE, AT_MOST_ONCE])
def test_a_fault_that_struck_when_all_was_delivered_struck_nothing(verdict: Judged, spec: RunSpec) -> None:
    story = Story()
    _event(story, "injection_injected")["at"] = at(10.5)
    _inconclusive(verdict(story, spec), TOO_LATE)


def test_a_fault_of_which_nobody_wrote_when_it_was_injected_did_not_take_effect(verdict: Judged) -> None:
    found = verdict(Story().without("injection_injected"))
    _inconclusive(found, f"{INJECTION} did not take effect (the journal does not say that it was injected)")
    assert found["injections"][0]["took_effect"] is False
