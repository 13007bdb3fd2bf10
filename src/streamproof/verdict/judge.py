"""Judge a run by its folder alone: run the checkers over its histories, measure what the faults cost, and have the outcome decided.

For a job that delivers records, the scan compares them with what was sent. For a stateful job, a reference model computes its results again
(``streamproof.verdict.stateful.reference``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from streamproof.evidence import manifest, versions
from streamproof.evidence.batches import read_batches
from streamproof.evidence.clock import Clock
from streamproof.evidence.coverage import Coverage
from streamproof.evidence.expected import Expected
from streamproof.evidence.files import milliseconds
from streamproof.evidence.folder import EvidenceError, RunFolder, read_json_lines
from streamproof.evidence.histories import Evidence, read_evidence
from streamproof.evidence.journal import (
    DriverStarted,
    Event,
    InjectionEvent,
    InjectionEvidence,
    InjectionFailed,
    InjectionHealed,
    InjectionInjected,
    InjectionStarted,
    LoadFinished,
    PhaseBegan,
    StageFinished,
)
from streamproof.evidence.locations import ENVELOPE, Location
from streamproof.evidence.payloads import read_payloads
from streamproof.verdict.anomaly import RESULT_KINDS, Anomaly
from streamproof.verdict.blame import Timeline
from streamproof.verdict.checks import commits
from streamproof.verdict.checks.accounts import check_batches, check_delivered, check_faults, check_load, check_results, check_sent
from streamproof.verdict.checks.atomicity import torn
from streamproof.verdict.checks.matching import Finding
from streamproof.verdict.checks.order import reordered
from streamproof.verdict.checks.read_twice import check_second_reading
from streamproof.verdict.checks.records import KINDS, Reconciliation, count, sent_only
from streamproof.verdict.checks.source import behind_the_end
from streamproof.verdict.checks.unjudged import unjudged
from streamproof.verdict.checks.vanished import NOTHING, always_since, check_versions, gaps, vanished
from streamproof.verdict.decide import PHASES
from streamproof.verdict.ending import notes
from streamproof.verdict.guarantee import Guarantee, Promise, forbidden
from streamproof.verdict.reconciliation import reconciliation_table
from streamproof.verdict.scan.scan import Identities, Scan, scan_histories
from streamproof.verdict.stateful import by_sql, reference
from streamproof.verdict.stateful.by_sql import BySql
from streamproof.verdict.stateful.reference import ReferenceModel
from streamproof.verdict.timing import baseline
from streamproof.verdict.timing.recovery import Flow, Stamps, ends, longest_gap, recovery, stamps, throughput
from streamproof.verdict.verdict import (
    Account,
    Drain,
    Injection,
    PhaseFigures,
    ReadTwice,
    ResultCounts,
    SentCounts,
    Verdict,
    WindowCoverage,
    decided,
)

Moment = TypeVar("Moment", bound=InjectionEvent)


@dataclass(frozen=True)
class RunSpec:
    """What a run is judged by. ``planned`` are the injections of its schedule; ``reference_model`` computes what a stateful job must
    deliver."""

    run: str
    experiment: str
    pipeline: str
    strategy: str
    guarantee: Guarantee
    expected: tuple[Anomaly, ...]
    planned: tuple[str, ...]
    seed: int
    versions: dict[str, str] = field(default_factory=dict)
    promises: frozenset[Promise] = frozenset()
    reference_model: ReferenceModel | None = None
    recover_within_s: float | None = None
    records: int | None = None
    """How many records the experiment sends; None where that is not known, as ``faults``, the faults that it plans."""
    faults: tuple[str, ...] | None = None
    location: Location = ENVELOPE
    """Where the output keeps the identity of a record."""
    not_judged: tuple[str, ...] = ()
    counted: bool = False
    """Whether the run says how often each record is due, in ``expected.parquet``."""
    results: BySql | None = None
    """What a job delivers instead of records, where a query of the user's own computes it again."""

    @property
    def of_results(self) -> bool:
        """Whether the job delivers results that it computes, instead of records."""
        return self.reference_model is not None or self.results is not None

    @property
    def forbidden(self) -> frozenset[Anomaly]:
        return forbidden(self.guarantee, self.promises, self.of_results)

    @property
    def asked(self) -> tuple[Anomaly, ...]:
        """The anomalies to look for: those of every delivery, the forbidden ones, and the expected ones."""
        kinds = RESULT_KINDS if self.of_results else KINDS
        return tuple(anomaly for anomaly in Anomaly if anomaly in {*kinds, *self.forbidden, *self.expected})

    def account(self) -> Account:
        """The facts of a run before its records are judged."""
        return Account(
            run=self.run,
            experiment=self.experiment,
            pipeline=self.pipeline,
            strategy=self.strategy,
            guarantee=self.guarantee,
            promises=tuple(sorted(self.promises)),
            forbidden=tuple(sorted(self.forbidden)),
            expected_anomalies=tuple(sorted(self.expected)),
            recover_within_s=self.recover_within_s,
            not_judged=self.not_judged,
            seed=self.seed,
            versions=self.versions,
        )


@dataclass(frozen=True)
class Judgement:
    """``table`` is what ``reconciliation.parquet`` holds; ``findings`` are all anomalous records."""

    verdict: Verdict
    table: pa.Table
    reconciliation: Reconciliation
    findings: tuple[Finding, ...]


Scanner = Callable[[RunFolder, Collection[Anomaly], Sequence[dict[str, Any]], np.ndarray, Stamps, Identities], Scan]


def judge(folder: RunFolder, spec: RunSpec, scan: Scanner = scan_histories) -> Judgement:
    """Judge a run by its folder. Raises EvidenceError when a file that is needed is missing or damaged.

    ``scan`` compares the histories of a job that delivers records.
    """
    manifest.verify(folder)
    check_faults(folder, spec.planned, spec.faults)
    drain = _with(folder.drain, folder.read_json(folder.drain), "complete", "reason", "records")
    check_delivered(folder, drain)
    due = _due(folder, spec)
    events = folder.journal.events()
    needed = ("batch", "start", "rows", "committed_at", "from", "until")
    progress = [_with(folder.progress, line, *needed) for line in read_json_lines(folder.progress)]
    if not spec.of_results:
        check_versions(folder, drain["records"])
        known = versions.known(folder)
        gone = gaps(folder, known) if Anomaly.VANISHED in spec.asked else NOTHING
        scanned = scan(folder, spec.asked, progress, ends(events, progress), stamps(drain), (gone.producer, gone.sequence))
        compared = _records(spec, progress, scanned, Clock.of(folder), partial(always_since, folder, known))
        compared.findings.extend(vanished(gone, scanned.matched, known))
    else:
        compared = _results(folder, spec, drain, progress)
    reconciliation, flow = compared.reconciliation, compared.flow
    moments = flow.moments
    acked_in = check_sent(folder, _spans(events))
    check_load(folder, _last_load(events), reconciliation, spec.records)
    last_ms = compared.last_result_ms if compared.results is not None else int(flow.written.max(initial=-1))
    injections = [_injection(name, events, flow, last_ms) for name in spec.planned]
    account = spec.account().model_copy(
        update={
            "anomalies": count(compared.findings, spec.asked),
            "sent": SentCounts(acked=reconciliation.acked, rejected=reconciliation.rejected, indeterminate=reconciliation.indeterminate),
            "delivered": reconciliation.delivered,
            "due": due,
            "windows": _windows(folder),
            "results": compared.results,
            "injections": tuple(injections),
            "phases": _phases(events, progress, flow, acked_in),
            "recovery_s": max((injection.first_output_s for injection in injections if injection.first_output_s is not None), default=None),
            "caught_up_s": max((injection.caught_up_s for injection in injections if injection.caught_up_s is not None), default=None),
            "longest_gap_s": longest_gap(moments),
            "output_s": round(float(moments[-1] - moments[0]) / 1000, 3) if len(moments) else None,
            "drain": Drain.model_validate(drain),
            "read_twice": _read_twice(folder, drain),
            "behind_the_end": behind_the_end(folder, {account.partition: account.acked for account in reconciliation.partitions}),
            "unjudged": () if spec.of_results else unjudged(folder, spec.promises, progress),
            "untimed": flow.untimed,
            "unordered": compared.unordered,
            "driver_starts": sum(isinstance(event, DriverStarted) for event in events),
            "batches": len(progress),
            "stage_seconds": {event.stage: event.seconds for event in events if isinstance(event, StageFinished)},
            "notes": tuple(notes(events)),
        }
    )
    account = account.model_copy(update={"baseline": baseline.compared(folder, account)})
    table = reconciliation_table(reconciliation, compared.findings, compared.evidence, Timeline(progress, events, places(drain)))
    return Judgement(decided(account), table, reconciliation, tuple(compared.findings))


@dataclass(frozen=True)
class _Compared:
    """What the histories show; ``results`` are the figures of a stateful job."""

    evidence: Evidence
    reconciliation: Reconciliation
    flow: Flow
    findings: list[Finding]
    results: ResultCounts | None = None
    unordered: int = 0
    last_result_ms: int = -1


def _records(spec: RunSpec, progress: Sequence[dict[str, Any]], scanned: Scan, clock: Clock, shown_since: commits.ShownSince) -> _Compared:
    """The findings about a job that delivers records."""
    evidence, matched = scanned.evidence, scanned.matched
    findings = list(scanned.reconciliation.findings)
    if Anomaly.REORDERED in spec.asked:
        findings += reordered(matched, evidence.keys)
    if Anomaly.TORN in spec.asked:
        findings += torn(matched, progress)
    unordered = 0
    if Anomaly.OFFSET_AHEAD in spec.asked:
        compared = commits.compare(matched, evidence.delivered_at, progress, clock, shown_since)
        findings += compared.findings
        unordered = compared.unordered
    return _Compared(evidence, scanned.reconciliation, scanned.flow, findings, unordered=unordered)


def places(drain: Mapping[str, Any]) -> dict[int, str]:
    """What the drain says of parts of the output, by their number."""
    return {int(number): str(place) for number, place in drain.get("places", {}).items()}


def _results(folder: RunFolder, spec: RunSpec, drain: Mapping[str, Any], progress: Sequence[dict[str, Any]]) -> _Compared:
    """The findings about the results of a job that computes some."""
    evidence, payloads = read_evidence(folder), read_payloads(folder)
    check_results(folder, drain, len(payloads.values))
    if spec.results is not None:
        batches = reference.committed(progress)
        judged = by_sql.judge(folder, spec.results, evidence.sent, payloads, batches)
    else:
        assert spec.reference_model is not None
        judged, batches = reference.judge(folder, spec.reference_model, evidence.sent, payloads), read_batches(folder.batches)
        check_batches(folder.batches, batches)
    reconciliation = sent_only(evidence.sent, len(payloads.values))
    flow = reference.flow_of_batches(evidence.sent, evidence.sent_at, batches)
    delivered_at = Clock.of(folder).believed(payloads.delivered_at)
    evidence = replace(evidence, delivered=payloads.delivered, delivered_at=delivered_at)
    figures = ResultCounts.model_validate(judged.figures)
    last_result_ms = int(payloads.delivered_at.max(initial=-1))
    return _Compared(evidence, reconciliation, flow, list(judged.findings), figures, last_result_ms=last_result_ms)


def _with(path: Path, fields: Any, *keys: str) -> dict[str, Any]:
    """``fields`` itself, if it has the keys that a judgement needs. Raises EvidenceError naming those that it lacks."""
    missing = [key for key in keys if not isinstance(fields, dict) or key not in fields]
    if missing:
        raise EvidenceError(f"{path} is damaged: {', '.join(missing)} missing in {str(fields)[:80]}")
    return dict(fields)


def _windows(folder: RunFolder) -> WindowCoverage | None:
    coverage = Coverage.read(folder)
    if coverage is None:
        return None
    return WindowCoverage(known=coverage.known, hit=tuple(dict.fromkeys(coverage.hit.values())), struck=coverage.struck)


def _due(folder: RunFolder, spec: RunSpec) -> int | None:
    """How many deliveries of all records the run expects; None where each is due once."""
    counts = Expected.of(folder).counts
    if (counts is not None) != spec.counted:
        raise EvidenceError(f"{folder.expected} {'is missing' if spec.counted else 'does not belong to this run'}")
    return None if counts is None else int(counts.sum())


def _read_twice(folder: RunFolder, drain: Mapping[str, Any]) -> ReadTwice | None:
    """How much of the output was read twice; None when it was read once."""
    reading = check_second_reading(folder)
    return None if reading is None else ReadTwice(records=reading.records, of=drain["records"], ranges=len(reading.stretches))


def _injection(name: str, events: Sequence[Event], flow: Flow, last_ms: int) -> Injection:
    """One planned injection, as the journal has it, and what it cost. ``last_ms`` is when the last output was made, -1 without any."""
    started = _last(events, InjectionStarted, name)
    injected = _last(events, InjectionInjected, name)
    evidence = _last(events, InjectionEvidence, name)
    healed = _last(events, InjectionHealed, name)
    failed = _last(events, InjectionFailed, name)
    checks = evidence.checks if evidence is not None else ()
    cost = recovery(flow, milliseconds(injected.at) if injected else None, milliseconds(healed.at) if healed else None)
    return Injection(
        injection=name,
        fault=started.fault if started is not None else name.rsplit("-", 1)[0],
        target=injected.target if injected is not None else started.target if started is not None else None,
        parameters=started.parameters if started is not None else None,
        phase=started.phase if started is not None else "impact",
        injected_at=injected.at if injected is not None else None,
        healed_at=healed.at if healed is not None else None,
        evidence=checks,
        heal=healed.checks if healed is not None else (),
        took_effect=injected is not None and bool(checks) and all(check.passed for check in checks),
        healed=healed is not None and all(check.passed for check in healed.checks),
        error=failed.error if failed is not None else None,
        output_after=injected is None or flow.untimed > 0 or last_ms >= milliseconds(injected.at),
        **asdict(cost),
    )


def _last(events: Sequence[Event], kind: type[Moment], injection: str) -> Moment | None:
    """The last event of this kind. A repeated stage journals again, and its last event counts."""
    return next((event for event in reversed(events) if isinstance(event, kind) and event.injection == injection), None)


def _last_load(events: Sequence[Event]) -> LoadFinished | None:
    return next((event for event in reversed(events) if isinstance(event, LoadFinished)), None)


def _spans(events: Sequence[Event]) -> dict[str, tuple[int, int]]:
    """When each phase began and ended, in ms."""
    starts = [event for event in events if isinstance(event, PhaseBegan)]
    borders = [milliseconds(event.at) for event in starts] + [milliseconds(events[-1].at)] if starts else []
    return {start.phase: span for start, span in zip(starts, itertools.pairwise(borders), strict=True) if start.phase in PHASES}


def _phases(
    events: Sequence[Event], progress: Sequence[dict[str, Any]], flow: Flow, acked_in: Mapping[str, int]
) -> dict[str, PhaseFigures]:
    starts = {event.phase: event.at for event in events if isinstance(event, PhaseBegan)}
    commits = [milliseconds(line["committed_at"]) for line in progress]
    phases = {}
    for phase, (begun, ended) in _spans(events).items():
        records, records_per_s = throughput(flow, begun, ended)
        phases[phase] = PhaseFigures(
            started_at=starts[phase],
            seconds=round((ended - begun) / 1000, 3),
            # Stamps are in whole ms. A phase begins because a commit was seen: one in its first ms belongs to the phase before.
            batches=sum(begun < commit <= ended for commit in commits),
            records=records,
            records_per_s=records_per_s,
            acked=acked_in[phase],
        )
    return phases
