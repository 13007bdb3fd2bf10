"""The rules by which a run's outcome is decided, and their order: of two facts that each decide, the earlier rule's wins."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.decide import NEEDS_THE_END, PHASES, RULES, Facts, InjectionFacts, ResultFacts, RunOutcome, decide
from streamproof.verdict.guarantee import Guarantee, Promise, forbidden

KILLED = InjectionFacts("kill_executor-1", took_effect=True, healed=True, caught_up_s=4.0)
GOOD = Facts(
    strategy="two_phase_commit",
    guarantee=Guarantee.EXACTLY_ONCE,
    forbidden=forbidden(Guarantee.EXACTLY_ONCE, (Promise.ATOMIC,)),
    recover_within_s=60.0,
    acked=60,
    anomalies=dict.fromkeys(Anomaly, 0),
    drained=True,
    injections=(KILLED,),
    batches=dict.fromkeys(PHASES, 1),
)

# A fact that each rule decides by, in the order of the rules.
DECIDING: list[tuple[RunOutcome, dict[str, Any], str]] = [
    (RunOutcome.ABORTED, {"aborted": "stopped by SIGINT"}, "stopped by SIGINT"),
    (RunOutcome.ERROR, {"failed_stage": "step drain failed: no answer"}, "step drain failed: no answer"),
    (RunOutcome.ERROR, {"disagreement": "only one judge names 0/5"}, "only one judge names 0/5"),
    (RunOutcome.ERROR, {"not_evaluated": "1 expectations could not be evaluated"}, "1 expectations could not be evaluated"),
    (RunOutcome.ERROR, {"acked": None}, "its records were not judged"),
    (RunOutcome.FAILED, {"own_suite": ("own: flights: no carrier is null does not hold (3)",)}, "own: flights"),
    (RunOutcome.FAILED, {"anomalies": {Anomaly.DUPLICATED: 2}}, "two_phase_commit broke exactly-once: 2 DUPLICATED"),
    (
        RunOutcome.FAILED,
        {"injections": (replace(KILLED, caught_up_s=61.0),)},
        "two_phase_commit took 61.0 s to catch up after kill_executor-1, 60 s were allowed",
    ),
    (RunOutcome.INCONCLUSIVE, {"batches": {"steady": 1, "impact": 1}}, "no micro-batch was committed in the recovery phase"),
    (RunOutcome.INCONCLUSIVE, {"unjudged": ("atomic was not judged: no batch",)}, "atomic was not judged: no batch"),
    (RunOutcome.INCONCLUSIVE, {"unordered": 3}, "3 records cannot be judged for OFFSET_AHEAD"),
]


def test_times_that_nobody_needs_may_be_unknown() -> None:
    allowed = replace(GOOD, guarantee=Guarantee.AT_MOST_ONCE, forbidden=forbidden(Guarantee.AT_MOST_ONCE, ()), recover_within_s=None)
    assert decide(replace(allowed, unordered=3, untimed=3)).outcome is RunOutcome.PASSED


def test_recovery_within_a_limit_needs_the_times_of_all_output() -> None:
    decision = decide(replace(GOOD, untimed=3))
    assert decision.outcome is RunOutcome.INCONCLUSIVE
    assert decision.reason == "recovery was not measured: 3 records were delivered at an unknown time"


def test_a_good_run_passes_and_nothing_else_is_as_expected() -> None:
    decision = decide(GOOD)
    assert (decision.outcome, decision.as_expected) == (RunOutcome.PASSED, True)
    assert decision.reason == "two_phase_commit kept exactly-once for 60 acknowledged records"


def test_each_rule_has_a_fact_here() -> None:
    assert [outcome for outcome, _, _ in DECIDING] == [outcome for outcome, _ in RULES]


@pytest.mark.parametrize(("outcome", "fact", "reason"), DECIDING)
def test_one_fact_decides(outcome: RunOutcome, fact: dict[str, Any], reason: str) -> None:
    decision = decide(replace(GOOD, **fact))
    assert (decision.outcome, decision.as_expected) == (outcome, False)
    assert reason in decision.reason


@pytest.mark.parametrize(("first", "second"), list(combinations(range(len(DECIDING)), 2)))
def test_of_two_facts_the_earlier_rule_decides(first: int, second: int) -> None:
    outcome, fact, reason = DECIDING[first]
    decision = decide(replace(GOOD, **{**DECIDING[second][1], **fact}))
    assert decision.outcome is outcome
    assert reason in decision.reason


def test_all_facts_at_once_are_an_aborted_run() -> None:
    facts = {name: value for _, fact, _ in DECIDING for name, value in fact.items()}
    assert decide(replace(GOOD, **facts)).outcome is RunOutcome.ABORTED
    assert decide(Facts(GOOD.strategy, GOOD.guarantee, GOOD.forbidden)).outcome is RunOutcome.ERROR, "nothing is known"


# --- FAILED ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anomaly", sorted(GOOD.forbidden))
def test_what_is_forbidden_fails_the_run(anomaly: Anomaly) -> None:
    assert decide(replace(GOOD, anomalies={anomaly: 1})).outcome is RunOutcome.FAILED


@pytest.mark.parametrize("anomaly", sorted(set(Anomaly) - GOOD.forbidden))
def test_what_is_not_forbidden_does_not(anomaly: Anomaly) -> None:
    decision = decide(replace(GOOD, anomalies={anomaly: 1}))
    assert decision.outcome is RunOutcome.PASSED
    assert decision.reason.endswith(f"(1 {anomaly}, which it allows)")


@pytest.mark.parametrize("anomaly", sorted(Anomaly))
def test_what_may_still_be_there_counts_only_once_the_output_was_read_to_its_end(anomaly: Anomaly) -> None:
    facts = replace(GOOD, forbidden=frozenset(Anomaly), anomalies={anomaly: 1}, drained=False, drain_reason="cut")
    assert decide(facts).outcome is (RunOutcome.INCONCLUSIVE if anomaly in NEEDS_THE_END else RunOutcome.FAILED)


def test_a_recovery_that_took_as_long_as_is_allowed_is_in_time() -> None:
    assert decide(replace(GOOD, injections=(replace(KILLED, caught_up_s=60.0),))).outcome is RunOutcome.PASSED
    assert decide(replace(GOOD, injections=(replace(KILLED, caught_up_s=900.0),), recover_within_s=None)).outcome is RunOutcome.PASSED


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({}, "own: a"),
        ({"anomalies": {Anomaly.LOST: 1}}, "two_phase_commit broke exactly-once: 1 LOST; own: a"),
        ({"drained": False, "drain_reason": "cut"}, "the drain did not reach the end of the output: cut; own: a"),
    ],
)
def test_the_own_suite_is_named_beside_what_else_is_wrong(others: dict[str, Any], reason: str) -> None:
    decision = decide(replace(GOOD, own_suite=("own: a",), **others))
    assert (decision.outcome, decision.reason) == (RunOutcome.FAILED, reason)


# --- INCONCLUSIVE ---------------------------------------------------------------------------------------------------------------------

DOUBTS: list[tuple[dict[str, Any], str]] = [
    ({"acked": 0}, "nothing was acknowledged, so nothing could be lost"),
    ({"results": ResultFacts(0, 3)}, "no result was due, so none could be missing"),
    ({"drained": False, "drain_reason": "cut"}, "the drain did not reach the end of the output: cut"),
    ({"injections": (replace(KILLED, took_effect=False),)}, "kill_executor-1 did not take effect (no evidence was recorded)"),
    ({"batches": {}}, "; ".join(f"no micro-batch was committed in the {phase} phase" for phase in PHASES)),
    ({"expected": (Anomaly.REORDERED,)}, "the negative control was not caught: no REORDERED record was found"),
    ({"behind_the_end": 2}, "2 acknowledged records lie behind the end of the input: the source lost them"),
]


@pytest.mark.parametrize(("fact", "reason"), DOUBTS)
def test_what_was_not_shown_is_named(fact: dict[str, Any], reason: str) -> None:
    decision = decide(replace(GOOD, **fact))
    assert (decision.outcome, decision.reason) == (RunOutcome.INCONCLUSIVE, reason)


def test_all_that_was_not_shown_is_named() -> None:
    facts = {name: value for fact, _ in DOUBTS for name, value in fact.items()}
    assert decide(replace(GOOD, **facts)).reason == "; ".join(reason for _, reason in DOUBTS)


@pytest.mark.parametrize(
    ("injection", "reason"),
    [
        (replace(KILLED, healed=False), "kill_executor-1 was not healed"),
        (replace(KILLED, took_effect=False, error="no executor"), "kill_executor-1 did not take effect (no executor)"),
        (replace(KILLED, took_effect=False, failed_checks=("a", "b"), error="x"), "kill_executor-1 did not take effect (not shown: a, b)"),
    ],
)
def test_an_injection_that_proves_nothing_says_why(injection: InjectionFacts, reason: str) -> None:
    assert decide(replace(GOOD, injections=(injection,))).reason == reason


# --- PASSED ---------------------------------------------------------------------------------------------------------------------------


def test_a_negative_control_that_showed_its_anomaly_passes() -> None:
    decision = decide(replace(GOOD, expected=(Anomaly.REORDERED,), anomalies={Anomaly.REORDERED: 4}))
    assert decision.outcome is RunOutcome.PASSED
    assert decision.reason.endswith("; the negative control was caught: 4 REORDERED, as expected")


def test_a_stateful_job_is_judged_by_its_results() -> None:
    decision = decide(replace(GOOD, results=ResultFacts(12, 3)))
    assert decision.reason.endswith("for 60 acknowledged records: 12 results were due, 3 records came too late to count")
