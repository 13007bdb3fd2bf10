"""The outcome of a run, decided in one place from what is known of the run.

``RULES`` is the table; the first rule that gives a reason decides, and its reasons are the verdict's. A run against which no rule has a
reason is PASSED.

Only a run that PASSED is as expected. What the expectations say is known after the stage ``expect``: until then the verdict is preliminary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee

PHASES = ("steady", "impact", "recovery")
MOST_INDETERMINATE = 0.05
"""The largest share of sends without a known outcome: whatever becomes of these is right, so they prove nothing."""
NEEDS_THE_END = frozenset({Anomaly.LOST, Anomaly.TORN, Anomaly.MISSING})
"""What is not known before the drain has read the output to its end: what is missing may still be there."""


class RunOutcome(StrEnum):
    """What can be said of a run."""

    PASSED = "PASSED"
    FAILED = "FAILED"
    INCONCLUSIVE = "INCONCLUSIVE"
    ERROR = "ERROR"
    ABORTED = "ABORTED"


@dataclass(frozen=True)
class InjectionFacts:
    """One planned injection. ``failed_checks`` are the checks of its evidence that did not pass, ``error`` is why it could not be made.
    ``injected`` says that the journal has the moment at which it was injected, ``output_after`` that the job delivered something after
    it."""

    injection: str
    took_effect: bool
    healed: bool
    failed_checks: tuple[str, ...] = ()
    error: str | None = None
    caught_up_s: float | None = None
    injected: bool = True
    output_after: bool = True


@dataclass(frozen=True)
class ResultFacts:
    """Results of a stateful job: how many were due, and how many records came too late to count."""

    due: int
    late_records: int


@dataclass(frozen=True)
class Facts:
    """What is known of a run when its outcome is decided. Without ``acked`` its records were not judged.

    ``aborted`` is why it was stopped, ``failed_stage`` names the stage and its error, ``disagreement`` the records that only one of the
    judges names, ``not_evaluated`` the expectations that could not be, ``own_suite`` says which expectations of the user's own suite do not
    hold. ``batches`` counts the micro-batches of each phase, ``acked_in`` the ACKED records that were sent in each; a phase that it lacks
    is not judged by it. ``behind_the_end`` counts the acknowledged records that the source lost, ``untimed`` those that were delivered at
    an unknown time, ``unordered`` those whose order to the commit of their offsets is not known. ``unjudged`` has a sentence for each
    promise that was not judged on all records, ``not_judged`` names what cannot be judged of this kind of job.
    ``windows`` says in how many of its windows the job was killed, and how many there are, where they were looked at.
    """

    strategy: str
    guarantee: Guarantee
    forbidden: frozenset[Anomaly]
    expected: tuple[Anomaly, ...] = ()
    recover_within_s: float | None = None

    aborted: str | None = None
    failed_stage: str | None = None
    disagreement: str | None = None
    not_evaluated: str | None = None
    own_suite: tuple[str, ...] = ()

    acked: int | None = None
    indeterminate_share: float = 0.0
    delivered: int | None = None
    acked_in: Mapping[str, int] = field(default_factory=dict)
    anomalies: Mapping[Anomaly, int] = field(default_factory=dict)
    results: ResultFacts | None = None
    drained: bool = False
    drain_reason: str | None = None
    injections: tuple[InjectionFacts, ...] = ()
    batches: Mapping[str, int] = field(default_factory=dict)
    behind_the_end: int = 0
    unjudged: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
    windows: tuple[int, int] | None = None
    untimed: int = 0
    unordered: int = 0


@dataclass(frozen=True)
class Decision:
    outcome: RunOutcome
    reason: str

    @property
    def as_expected(self) -> bool:
        return self.outcome is RunOutcome.PASSED


def decide(facts: Facts) -> Decision:
    """The first rule that gives a reason decides."""
    for outcome, rule in RULES:
        if reasons := list(rule(facts)):
            return Decision(outcome, "; ".join(reasons))
    return Decision(RunOutcome.PASSED, f"{_kept(facts)}{_not_judged(facts)}")


# --- the rules: each yields the reasons for its outcome, none when it does not apply ---------------------------------------------------


def _stopped(facts: Facts) -> Iterator[str]:
    """The run was stopped."""
    if facts.aborted is not None:
        yield facts.aborted


def _a_stage_failed(facts: Facts) -> Iterator[str]:
    """A stage failed and was not repeated with success."""
    if facts.failed_stage is not None:
        yield facts.failed_stage


def _the_judges_disagree(facts: Facts) -> Iterator[str]:
    """The two judges do not name the same records."""
    if facts.disagreement is not None:
        yield facts.disagreement


def _expectations_not_evaluated(facts: Facts) -> Iterator[str]:
    """An expectation could not be evaluated."""
    if facts.not_evaluated is not None:
        yield facts.not_evaluated


def _records_not_judged(facts: Facts) -> Iterator[str]:
    """The records were not judged."""
    if facts.acked is None:
        yield "its records were not judged"


def _own_suite_fails(facts: Facts) -> Iterator[str]:
    """An expectation of the user's own suite does not hold. The reason also says what is wrong without that suite."""
    if facts.own_suite:
        without = decide(replace(facts, own_suite=()))
        if without.outcome is not RunOutcome.PASSED:
            yield without.reason
        yield from facts.own_suite


def _guarantee_broken(facts: Facts) -> Iterator[str]:
    """An anomaly was found that the guarantee or a promise forbids. LOST, TORN and MISSING count only once the drain has read the output
    to its end: before, what is missing may still be there."""
    counted = facts.forbidden if facts.drained else facts.forbidden - NEEDS_THE_END
    if broken := _counts({anomaly: number for anomaly, number in facts.anomalies.items() if anomaly in counted}):
        yield f"{facts.strategy} broke {facts.guarantee}: {broken}"


def _recovered_too_late(facts: Facts) -> Iterator[str]:
    """A fault cost more time than the experiment allows (`recover_within`)."""
    allowed_s = facts.recover_within_s
    for injection in facts.injections:
        took_s = injection.caught_up_s
        if allowed_s is not None and took_s is not None and took_s > allowed_s:
            yield f"{facts.strategy} took {took_s:.1f} s to catch up after {injection.injection}, {allowed_s:g} s were allowed"


def _not_shown(facts: Facts) -> Iterator[str]:
    """Something was not shown: nothing was acknowledged, or the outcome of more than 5 % of the sends is unknown; nothing was delivered, or
    nothing after an injection; no result of a stateful job was due; the drain did not reach the end of the output; an injection has no
    evidence, or one of its checks did not pass, or it was not healed; one of the phases steady, impact and recovery has no committed
    micro-batch, or no acknowledged record was sent in it; a negative control did not show its anomaly; the source lost acknowledged
    records."""
    yield from _too_little_known(facts)
    yield from _nothing_delivered(facts)
    if facts.results is not None and not facts.results.due:
        yield "no result was due, so none could be missing"
    if not facts.drained:
        yield f"the drain did not reach the end of the output: {facts.drain_reason}"
    for injection in facts.injections:
        yield from _injection_not_shown(injection)
    yield from (f"no micro-batch was committed in the {phase} phase" for phase in PHASES if not facts.batches.get(phase))
    for anomaly in facts.expected:
        if not facts.anomalies.get(anomaly):
            yield f"the negative control was not caught: no {anomaly} record was found"
    if facts.behind_the_end:
        yield f"{facts.behind_the_end} acknowledged records lie behind the end of the input: the source lost them"


def _a_promise_not_judged(facts: Facts) -> Iterator[str]:
    """A promise was not judged on all records: copies do not name their batch, no report gives the range of a visible batch, or
    acknowledged records have no known offset."""
    yield from facts.unjudged


def _times_unknown(facts: Facts) -> Iterator[str]:
    """Times that the verdict needs are not known: whether OFFSET_AHEAD records are among those whose order to the commit of their offsets
    is unknown, where that is forbidden; or how long recovery took, where the experiment limits it."""
    if facts.unordered and Anomaly.OFFSET_AHEAD in facts.forbidden:
        yield f"{facts.unordered} records cannot be judged for {Anomaly.OFFSET_AHEAD}: when they were delivered is not known well enough"
    if facts.untimed and facts.injections and facts.recover_within_s is not None:
        yield f"recovery was not measured: {facts.untimed} records were delivered at an unknown time"


RULES: tuple[tuple[RunOutcome, Callable[[Facts], Iterator[str]]], ...] = (
    (RunOutcome.ABORTED, _stopped),
    (RunOutcome.ERROR, _a_stage_failed),
    (RunOutcome.ERROR, _the_judges_disagree),
    (RunOutcome.ERROR, _expectations_not_evaluated),
    (RunOutcome.ERROR, _records_not_judged),
    (RunOutcome.FAILED, _own_suite_fails),
    (RunOutcome.FAILED, _guarantee_broken),
    (RunOutcome.FAILED, _recovered_too_late),
    (RunOutcome.INCONCLUSIVE, _not_shown),
    (RunOutcome.INCONCLUSIVE, _a_promise_not_judged),
    (RunOutcome.INCONCLUSIVE, _times_unknown),
)


# --- sentences ------------------------------------------------------------------------------------------------------------------------


def _too_little_known(facts: Facts) -> Iterator[str]:
    if not facts.acked:
        yield "nothing was acknowledged, so nothing could be lost"
        return
    if facts.indeterminate_share > MOST_INDETERMINATE:
        share, most = facts.indeterminate_share, MOST_INDETERMINATE
        yield f"the outcome of {share:.1%} of the sends is unknown (INDETERMINATE), expected at most {most:.0%}: they may be lost unseen"
    yield from (f"no acknowledged record was sent in the {phase} phase" for phase in PHASES if facts.acked_in.get(phase) == 0)


def _nothing_delivered(facts: Facts) -> Iterator[str]:
    if facts.results is not None and not facts.results.due:
        return
    if facts.delivered == 0:
        yield "nothing was delivered"
        return
    for injection in facts.injections:
        if injection.injected and not injection.output_after:
            yield f"nothing was delivered after {injection.injection}: it came too late to show anything, or the job never came back"


def _injection_not_shown(facts: InjectionFacts) -> Iterator[str]:
    if not facts.took_effect:
        unknown = "no evidence was recorded" if facts.injected else "the journal does not say that it was injected"
        why = f"not shown: {', '.join(facts.failed_checks)}" if facts.failed_checks else facts.error or unknown
        yield f"{facts.injection} did not take effect ({why})"
    if not facts.healed:
        yield f"{facts.injection} was not healed"


def _kept(facts: Facts) -> str:
    """Why a run PASSED."""
    kept = f"{facts.strategy} kept {facts.guarantee} for {facts.acked} acknowledged records"
    if facts.indeterminate_share:
        kept += f" (the outcome of {facts.indeterminate_share:.1%} of the sends is unknown)"
    if facts.results is not None:
        kept += f": {facts.results.due} results were due, {facts.results.late_records} records came too late to count"
    if facts.windows is not None:
        kept += f", killed in {facts.windows[0]} of {facts.windows[1]} windows"
    shown = _counts(facts.anomalies)
    if facts.expected:
        return f"{kept}; the negative control was caught: {shown}, as expected"
    return kept + (f" ({shown}, which it allows)" if shown else "")


def _not_judged(facts: Facts) -> str:
    return f"; not judged: {', '.join(facts.not_judged)}" if facts.not_judged else ""


def _counts(anomalies: Mapping[Anomaly, int]) -> str:
    return ", ".join(f"{number} {anomaly}" for anomaly, number in anomalies.items() if number)
