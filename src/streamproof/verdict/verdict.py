"""The verdict on a run: the typed form of ``verdict.json``, and the only code that reads and writes that file.

An :class:`Account` is what is known of a run, from its records, its journal and its expectations. :func:`decided` makes a
:class:`Verdict` of it, which holds the outcome too. A verdict is complete: what is known after it was written (the run was stopped, an
expectation does not hold) is added to its account, and the outcome is decided again.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, ValidationError, computed_field

from streamproof.evidence.files import SCHEMA_VERSION, EvidenceError, write_atomically
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import EvidenceCheck
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.decide import Decision, Facts, InjectionFacts, ResultFacts, RunOutcome, decide
from streamproof.verdict.ending import Ending
from streamproof.verdict.guarantee import Guarantee, Promise


def _check(fields: Any) -> EvidenceCheck:
    if isinstance(fields, EvidenceCheck):
        return fields
    if not isinstance(fields, dict) or not {"check", "passed"} <= set(fields):
        raise ValueError("expected an object with check and passed")
    return EvidenceCheck.from_json(fields)


Check = Annotated[EvidenceCheck, PlainValidator(_check), PlainSerializer(EvidenceCheck.to_json, return_type=dict[str, Any])]


class _Part(BaseModel):
    """Older verdicts lack some fields, newer ones may have more: both can be read."""

    model_config = ConfigDict(frozen=True, populate_by_name=True, extra="ignore")


class SentCounts(_Part):
    acked: int
    rejected: int
    indeterminate: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def indeterminate_share(self) -> float:
        """The share of the sends whose outcome is unknown."""
        return round(self.indeterminate / max(self.acked + self.rejected + self.indeterminate, 1), 6)


class ResultCounts(_Part):
    """Of a stateful job. ``late_rows`` were to be dropped for coming too late, at least and at most; Spark reported ``dropped_rows``."""

    due: int
    delivered: int
    late_records: int
    late_rows: tuple[int, ...]
    dropped_rows: int
    batches: int
    batches_unreported: int


class WindowCoverage(_Part):
    """The windows of a job that were seen, those in which it was killed, and which faults struck in each, whatever they did."""

    known: tuple[str, ...]
    hit: tuple[str, ...]
    struck: dict[str, tuple[str, ...]] = {}

    @property
    def missed(self) -> tuple[str, ...]:
        """The windows in which it was never killed."""
        return tuple(window for window in self.known if window not in self.hit)


class Drain(BaseModel):
    """What ``delivered/drain.json`` holds; a sink may say more there."""

    model_config = ConfigDict(frozen=True, extra="allow")

    complete: bool
    reason: str | None


class ReadTwice(_Part):
    """How many delivered records a second reader read too, ``of`` how many; ``ranges`` is in how many stretches."""

    records: int
    of: int
    ranges: int


class OwnSuite(_Part):
    """The user's own suite: ``failed`` are the expectations that do not hold, ``failures`` a sentence on each.

    ``outcome`` and ``reason`` are what the run is without the suite.
    """

    name: str
    expectations: int
    failed: tuple[str, ...]
    failures: tuple[str, ...] = ()
    outcome: RunOutcome | None = None
    reason: str | None = None

    @property
    def sentences(self) -> tuple[str, ...]:
        """Why the suite makes the run FAILED, one sentence; empty when all of it holds."""
        if not self.failed:
            return ()
        return (f"{self.name}: {'; '.join(self.failures or [f'{check} does not hold' for check in self.failed])}",)


class Injection(_Part):
    """One planned injection, what was checked of it, and what it cost."""

    injection: str
    fault: str
    target: dict[str, Any] | None = None
    parameters: dict[str, Any] | None = None
    phase: str = "impact"
    injected_at: str | None = None
    healed_at: str | None = None
    evidence: tuple[Check, ...] = ()
    heal: tuple[Check, ...] = ()
    took_effect: bool
    healed: bool
    error: str | None = None
    first_output_s: float | None = None
    caught_up_s: float | None = None
    backlog_records: int | None = None
    longest_gap_s: float | None = None
    output_after: bool = True

    def facts(self) -> InjectionFacts:
        failed = tuple(check.check for check in self.evidence if not check.passed)
        injected = self.injected_at is not None
        return InjectionFacts(
            self.injection, self.took_effect, self.healed, failed, self.error, self.caught_up_s, injected, self.output_after
        )


class PhaseFigures(_Part):
    started_at: str
    seconds: float
    batches: int
    records: int | None = None
    records_per_s: float | None = None
    acked: int | None = None
    """How many of the records that were sent in the phase were ACKED; None in a verdict of an older version."""


class BaselineRatios(_Part):
    output_s: float | None
    longest_gap_s: float | None
    records_per_s: dict[str, float | None]


class BaselineFigures(_Part):
    """The same run without faults, and this run's figures by those of that one."""

    run: str
    folder: str
    output_s: float | None
    longest_gap_s: float | None
    records_per_s: dict[str, float | None]
    ratios: BaselineRatios


class Account(_Part):
    """Everything of a verdict but its outcome. Of a run whose records were not judged, what is not known is None or empty."""

    schema_version: int = Field(default=SCHEMA_VERSION, alias="schema")
    run: str
    experiment: str
    pipeline: str
    strategy: str
    guarantee: Guarantee
    promises: tuple[Promise, ...] = ()
    forbidden: tuple[Anomaly, ...] = ()
    expected_anomalies: tuple[Anomaly, ...] = ()
    anomalies: dict[Anomaly, int] = Field(default_factory=dict)
    sent: SentCounts | None = None
    delivered: int | None = None
    due: int | None = None
    """How many deliveries of all records the run expects; None where each is due once."""
    windows: WindowCoverage | None = None
    """None where the messages of the run were not read."""
    results: ResultCounts | None = None
    suite: OwnSuite | None = None
    disagreement: str | None = None
    not_evaluated: str | None = None
    injections: tuple[Injection, ...] = ()
    phases: dict[str, PhaseFigures] = Field(default_factory=dict)
    recover_within_s: float | None = None
    recovery_s: float | None = None
    caught_up_s: float | None = None
    longest_gap_s: float | None = None
    output_s: float | None = None
    drain: Drain | None = None
    read_twice: ReadTwice | None = None
    behind_the_end: int = 0
    unjudged: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
    """What cannot be judged of this kind of job, whatever the run shows."""
    untimed: int = 0
    unordered: int = 0
    driver_starts: int | None = None
    batches: int | None = None
    seed: int
    versions: dict[str, str] = Field(default_factory=dict)
    stage_seconds: dict[str, float] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    baseline: BaselineFigures | None = None

    def with_expectations(self, stored: Verdict | None) -> Self:
        """This account, with what the expectations said when ``stored`` was written."""
        if stored is None:
            return self
        disagreement, not_evaluated = self.disagreement or stored.disagreement, self.not_evaluated or stored.not_evaluated
        return self.model_copy(update={"disagreement": disagreement, "not_evaluated": not_evaluated, "suite": stored.suite})

    @property
    def broken(self) -> dict[str, int]:
        """The anomalies that were found though they are forbidden, with how many of each."""
        return {str(anomaly): count for anomaly, count in self.anomalies.items() if count and anomaly in self.forbidden}

    def facts(self, ending: Ending) -> Facts:
        return Facts(
            strategy=self.strategy,
            guarantee=self.guarantee,
            forbidden=frozenset(self.forbidden),
            expected=self.expected_anomalies,
            recover_within_s=self.recover_within_s,
            aborted=ending.aborted,
            failed_stage=ending.failed_stage,
            disagreement=self.disagreement,
            not_evaluated=self.not_evaluated,
            own_suite=self.suite.sentences if self.suite is not None else (),
            acked=self.sent.acked if self.sent is not None else None,
            anomalies=self.anomalies,
            results=ResultFacts(self.results.due, self.results.late_records) if self.results is not None else None,
            drained=self.drain is not None and self.drain.complete,
            drain_reason=self.drain.reason if self.drain is not None else None,
            injections=tuple(injection.facts() for injection in self.injections),
            indeterminate_share=self.sent.indeterminate_share if self.sent is not None else 0.0,
            delivered=self.results.delivered if self.results is not None else self.delivered,
            acked_in={phase: figures.acked for phase, figures in self.phases.items() if figures.acked is not None},
            batches={phase: figures.batches for phase, figures in self.phases.items()},
            behind_the_end=self.behind_the_end,
            unjudged=self.unjudged,
            not_judged=self.not_judged,
            windows=None if self.windows is None else (len(self.windows.hit), len(self.windows.known)),
            untimed=self.untimed,
            unordered=self.unordered,
        )


class Verdict(Account):
    outcome: RunOutcome
    reason: str

    @property
    def as_expected(self) -> bool:
        return Decision(self.outcome, self.reason).as_expected

    def to_json(self) -> dict[str, Any]:
        """The object that ``verdict.json`` holds."""
        fields = self.model_dump(mode="json", by_alias=True)
        first = {name: fields.pop(name) for name in ("schema", "run", "experiment", "outcome")}
        ordered = {**first, "as_expected": self.as_expected, "reason": fields.pop("reason"), **fields}
        return {**ordered, "sent": ordered["sent"] or {}}

    @classmethod
    def from_json(cls, fields: Any) -> Self:
        """Raises ValueError naming what is wrong."""
        if not isinstance(fields, dict):
            raise ValueError(f"expected an object, came {type(fields).__name__}")
        try:
            return cls.model_validate({**fields, "sent": fields.get("sent") or None})
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error

    @classmethod
    def read(cls, folder: RunFolder) -> Self:
        """The stored verdict. Raises EvidenceError when it is missing or is none."""
        fields = folder.read_json(folder.verdict)
        try:
            return cls.from_json(fields)
        except ValueError as error:
            again = "`streamproof check` judges the run again from its evidence"
            raise EvidenceError(f"{folder.verdict} is not a verdict ({error}): {again}") from error

    def write(self, folder: RunFolder) -> None:
        write_atomically(folder.verdict, json.dumps(self.to_json(), indent=1))


def decided(account: Account, ending: Ending | None = None) -> Verdict:
    """The verdict on a run of which this is known."""
    ending = ending or Ending()
    suite = account.suite
    if suite is not None:
        without = decide(account.model_copy(update={"suite": None}).facts(Ending()))
        suite = suite.model_copy(update={"outcome": without.outcome, "reason": without.reason})
    decision = decide(account.facts(ending))
    values = {name: getattr(account, name) for name in Account.model_fields}
    return Verdict.model_validate({**values, "suite": suite, "outcome": decision.outcome, "reason": decision.reason})


def ending(folder: RunFolder, stored: Verdict | None) -> Ending:
    """How a run ended: as its journal says, else as its stored verdict has it, which an older version may have written."""
    by_journal = Ending.of(folder.journal)
    if stored is None or by_journal != Ending():
        return by_journal
    if stored.outcome is RunOutcome.ABORTED:
        return Ending(aborted=stored.reason)
    if stored.outcome is RunOutcome.ERROR and stored.disagreement is None and stored.not_evaluated is None:
        return Ending(failed_stage=stored.reason)
    return by_journal
