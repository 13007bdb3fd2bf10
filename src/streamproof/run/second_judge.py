"""What the second judge says, as facts of the decision: what contradicts the checkers, and what the user's own suite found."""

from __future__ import annotations

from streamproof.suites.evaluate import Evaluation
from streamproof.verdict.decide import Decision, RunOutcome
from streamproof.verdict.verdict import OwnSuite


def disagreement_with(by_records: Decision, evaluation: Evaluation) -> tuple[str | None, str | None]:
    """Where the suites and the checkers' decision contradict each other, and which expectations could not be evaluated; each None or a
    sentence. A run that broke or was stopped says nothing of its records, so there is nothing to contradict."""
    if by_records.outcome in (RunOutcome.ERROR, RunOutcome.ABORTED):
        return None, None
    if evaluation.error is not None or evaluation.disagreement is not None:
        return evaluation.disagreement, evaluation.error
    if evaluation.success and evaluation.unjudged is not None:
        return None, None  # what is wrong may be what they did not judge
    if evaluation.success == by_records.as_expected:
        return None, None
    if evaluation.success:
        return f"the verdict is {by_records.outcome} ({by_records.reason}), but every expectation holds", None
    failed = ", ".join(f"{result.expectation} (observed: {result.observed})" for result in evaluation.results if not result.success)
    return f"the verdict is {by_records.outcome}, but these expectations do not hold: {failed}", None


def own_suite(evaluation: Evaluation) -> OwnSuite | None:
    """What the user's own suite says, for the verdict; None when the run has none."""
    if evaluation.own_suite is None:
        return None
    failed = [result for result in evaluation.own if not result.success]
    return OwnSuite(
        name=evaluation.own_suite,
        expectations=len(evaluation.own),
        failed=tuple(result.description for result in failed),
        failures=tuple(f"{result.description} does not hold ({result.observed})" for result in failed),
    )
