"""The verdict on a run, recomputed from its folder alone.

The rules, in order:

    FAILED        an anomaly that the guarantee, or a promise of the strategy, forbids was found. (LOST, TORN and MISSING only count once
                  the drain reached the end of the output.)
                  Or a fault cost more time than the experiment allows (``recover_within``).
    INCONCLUSIVE  something was not shown: an injection without evidence or not healed, a drain that did not reach the end, a phase
                  without a micro-batch, nothing acknowledged, acknowledged records that the source lost, no result of a stateful job due,
                  or an expected anomaly that was not seen (the control did not bite).
    PASSED        otherwise.

After that, the expectation suites judge the same data, by other means: if they do not name the same records, the run is an ERROR. A user's
own suite (``suite``) that does not hold makes the run FAILED, and one that cannot be evaluated an ERROR.

A stateful job has results instead of records: they are judged by computing them again (``streamproof.verdict.stateful.reference``).

Other ERRORs and ABORTED are not found by looking at records: a step failed, or the run was stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamproof.evidence.batches import read_batches
from streamproof.evidence.folder import SCHEMA_VERSION, EvidenceError, RunFolder, read_json_lines
from streamproof.evidence.histories import Evidence, read_evidence, write_table
from streamproof.evidence.payloads import read_payloads
from streamproof.verdict.anomaly import RESULT_KINDS, Anomaly
from streamproof.verdict.blame import Timeline, explain
from streamproof.verdict.checks.atomicity import torn
from streamproof.verdict.checks.commits import ahead
from streamproof.verdict.checks.matching import Finding
from streamproof.verdict.checks.order import reordered
from streamproof.verdict.checks.records import KINDS, Reconciliation, count, sent_only
from streamproof.verdict.checks.source import behind_the_end
from streamproof.verdict.guarantee import Guarantee, Promise, forbidden
from streamproof.verdict.scan.scan import Survey, survey
from streamproof.verdict.stateful import reference
from streamproof.verdict.stateful.reference import Declaration
from streamproof.verdict.timing import baseline
from streamproof.verdict.timing.recovery import Flow, Stamps, ends, longest_gap, milliseconds, recovery, stamps, throughput

PHASES = ("steady", "impact", "recovery")
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
class Terms:
    """What a run is judged by: ``planned`` are the injections that the schedule holds, ``stateful`` is what a stateful job declares."""

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
    stateful: Declaration | None = None
    recover_within_s: float | None = None

    @property
    def forbidden(self) -> frozenset[Anomaly]:
        return forbidden(self.guarantee, self.promises, self.stateful is not None)

    @property
    def asked(self) -> tuple[Anomaly, ...]:
        """The anomalies that are looked for: the kinds of every delivery, what was promised not to be, and what is to be seen."""
        kinds = KINDS if self.stateful is None else RESULT_KINDS
        return tuple(anomaly for anomaly in Anomaly if anomaly in {*kinds, *self.forbidden, *self.expected})


@dataclass(frozen=True)
class Judgement:
    """``verdict`` is what ``verdict.json`` holds; ``table`` what ``reconciliation.parquet`` holds; ``findings`` every anomalous record."""

    verdict: dict[str, Any]
    table: pa.Table
    reconciliation: Reconciliation
    findings: tuple[Finding, ...]


RECONCILIATION = pa.schema(
    [
        ("row", pa.string()),
        ("anomaly", pa.string()),
        ("producer", pa.int32()),
        ("sequence", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("copies", pa.int32()),
        ("acked", pa.int64()),
        ("indeterminate", pa.int64()),
        ("rejected", pa.int64()),
        ("delivered", pa.int64()),
        ("lost", pa.int64()),
        ("duplicated", pa.int64()),
        ("blame", pa.string()),
        ("start", pa.int32()),
        ("batch", pa.int64()),
        ("result", pa.string()),
    ],
    metadata={b"schema_version": str(SCHEMA_VERSION).encode()},
)


Look = Callable[[RunFolder, Collection[Anomaly], Sequence[dict[str, Any]], np.ndarray, Stamps], Survey]


def judge(folder: RunFolder, terms: Terms, look: Look = survey) -> Judgement:
    """Judge a run by its folder. Raises EvidenceError when a file that is needed is missing or damaged.

    ``look`` compares the histories of a job that delivers records.
    """
    drain = _with(folder.drain, folder.read_json(folder.drain), "complete", "reason")
    events = [_with(folder.journal.path, event, "at", "event") for event in folder.journal.events()]
    needed = ("batch", "start", "rows", "committed_at", "from", "until")
    progress = [_with(folder.progress, line, *needed) for line in read_json_lines(folder.progress)]
    if terms.stateful is None:
        surveyed = look(folder, terms.asked, progress, ends(events, progress), stamps(drain))
        judged = _records(folder, terms, progress, surveyed)
    else:
        judged = _results(folder, terms.stateful)
    evidence, found, findings, seen = judged.evidence, judged.found, judged.findings, judged.seen
    injections = [_injection(name, events, seen) for name in terms.planned]
    phases = _phases(events, progress, seen)
    counts = count(findings, terms.asked)
    outcome, reason = _decide(terms, counts, judged, drain, injections, phases, behind_the_end(folder))
    verdict = {
        **_known(terms, outcome, reason),
        "anomalies": {str(anomaly): count for anomaly, count in counts.items()},
        "sent": {"acked": found.acked, "rejected": found.rejected, "indeterminate": found.indeterminate},
        "delivered": found.delivered,
        "results": judged.results,
        "suite": None,
        "injections": injections,
        "phases": phases,
        "recover_within_s": terms.recover_within_s,
        "recovery_s": _worst(injections, "first_output_s"),
        "caught_up_s": _worst(injections, "caught_up_s"),
        "longest_gap_s": longest_gap(seen.moments),
        "output_s": round(float(seen.visible[-1] - seen.visible[0]) / 1000, 3) if len(seen.visible) else None,
        "drain": drain,
        "driver_starts": sum(event["event"] == "driver_started" for event in events),
        "batches": len(progress),
        "seed": terms.seed,
        "versions": terms.versions,
        "step_seconds": {event["step"]: event["seconds"] for event in events if event["event"] == "step_finished"},
        "notes": notes(events),
    }
    verdict["baseline"] = baseline.compared(folder, verdict)
    return Judgement(verdict, _table(found, findings, evidence, Timeline(progress, events)), found, tuple(findings))


@dataclass(frozen=True)
class _Judged:
    """What the histories show; ``results`` are the figures of a stateful job."""

    evidence: Evidence
    found: Reconciliation
    seen: Flow
    findings: list[Finding]
    results: dict[str, Any] | None = None


def _records(folder: RunFolder, terms: Terms, progress: Sequence[dict[str, Any]], surveyed: Survey) -> _Judged:
    """A job that delivers records: they were compared with what was sent."""
    evidence, matched = surveyed.evidence, surveyed.matched
    findings = list(surveyed.found.findings)
    if Anomaly.REORDERED in terms.asked:
        findings += reordered(matched, evidence.keys)
    if Anomaly.TORN in terms.asked:
        findings += torn(matched, progress)
    if Anomaly.AHEAD in terms.asked:
        findings += ahead(matched, evidence.delivered_at, progress)
    return _Judged(evidence, surveyed.found, surveyed.flow, findings)


def _results(folder: RunFolder, declared: Declaration) -> _Judged:
    """A stateful job: its results are compared with those that are computed again."""
    evidence, payloads = read_evidence(folder), read_payloads(folder)
    judged = reference.judge(folder, declared, evidence.sent, payloads)
    found = sent_only(evidence.sent, len(payloads.values))
    seen = reference.flow_of_batches(evidence.sent, evidence.sent_at, read_batches(folder.batches))
    evidence = replace(evidence, delivered=payloads.delivered, delivered_at=payloads.delivered_at)
    return _Judged(evidence, found, seen, list(judged.findings), judged.figures)


def notes(events: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader of the verdict should know of the run beside its records, from the journal."""
    said = {
        "runner_vanished": "its runner vanished: the dead man's timer gave the testbed back",
        "testbed_rebuilt": "the testbed could not be brought back and was built anew",
    }
    told = [f"{said[event['event']]} ({event['reason']})" for event in events if event["event"] in said]
    if lost := {event["transaction"]: event["batch"] for event in events if event["event"] == "decision_lost"}:
        batches = ", ".join(str(batch) for batch in sorted(set(lost.values())))
        told.append(f"the job decided to commit {len(lost)} transactions (batch {batches}) that the broker had aborted, and went on")
    return told


def _with(path: Path, found: Any, *keys: str) -> dict[str, Any]:
    """``found`` itself, if it has the keys that a judgement needs. Raises EvidenceError naming those that it lacks."""
    missing = [key for key in keys if not isinstance(found, dict) or key not in found]
    if missing:
        raise EvidenceError(f"{path} is damaged: {', '.join(missing)} missing in {str(found)[:80]}")
    return dict(found)


def _known(terms: Terms, outcome: RunOutcome, reason: str) -> dict[str, Any]:
    """What every verdict begins with: what was judged, by which terms, and how."""
    return {
        "schema": SCHEMA_VERSION,
        "run": terms.run,
        "experiment": terms.experiment,
        "outcome": outcome,
        "as_expected": outcome is RunOutcome.PASSED,
        "reason": reason,
        "pipeline": terms.pipeline,
        "strategy": terms.strategy,
        "guarantee": terms.guarantee,
        "promises": sorted(terms.promises),
        "forbidden": sorted(terms.forbidden),
        "expected_anomalies": sorted(terms.expected),
    }


def without_evidence(terms: Terms, outcome: RunOutcome, reason: str) -> dict[str, Any]:
    """The verdict on a run that was stopped or broke: everything that is not known is null or empty."""
    return {
        **_known(terms, outcome, reason),
        "anomalies": {},
        "sent": {},
        "delivered": None,
        "results": None,
        "suite": None,
        "injections": [],
        "phases": {},
        "recover_within_s": terms.recover_within_s,
        "recovery_s": None,
        "caught_up_s": None,
        "longest_gap_s": None,
        "output_s": None,
        "drain": None,
        "driver_starts": None,
        "batches": None,
        "seed": terms.seed,
        "versions": terms.versions,
        "step_seconds": {},
        "notes": [],
        "baseline": None,
    }


def _decide(
    terms: Terms,
    counts: dict[Anomaly, int],
    judged: _Judged,
    drain: dict[str, Any],
    injections: list[dict[str, Any]],
    phases: dict[str, dict[str, Any]],
    vanished: int,
) -> tuple[RunOutcome, str]:
    undecided = set() if drain["complete"] else NEEDS_THE_END
    broken = [f"{number} {anomaly}" for anomaly, number in counts.items() if number and anomaly in terms.forbidden - undecided]
    if broken:
        return RunOutcome.FAILED, f"{terms.strategy} broke {terms.guarantee}: {', '.join(broken)}"
    if slow := list(_slow(terms, injections)):
        return RunOutcome.FAILED, "; ".join(slow)
    doubts = list(_doubts(terms, counts, judged, drain, injections, phases))
    if vanished:
        doubts.append(f"{vanished} acknowledged records lie behind the end of the input: the source lost them")
    if doubts:
        return RunOutcome.INCONCLUSIVE, "; ".join(doubts)
    seen = [f"{number} {anomaly}" for anomaly, number in counts.items() if number]
    kept = f"{terms.strategy} kept {terms.guarantee} for {judged.found.acked} acknowledged records"
    if judged.results is not None:
        kept += f": {judged.results['due']} results were due, {judged.results['late_records']} records came too late to count"
    if terms.expected:
        return RunOutcome.PASSED, f"{kept}; the negative control bit: {', '.join(seen)}, as expected"
    return RunOutcome.PASSED, kept + (f" ({', '.join(seen)}, which it allows)" if seen else "")


def _slow(terms: Terms, injections: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The faults after which the backlog was there for longer than was allowed."""
    if terms.recover_within_s is None:
        return
    for injection in injections:
        took_s = injection["caught_up_s"]
        if took_s is not None and took_s > terms.recover_within_s:
            name = injection["injection"]
            yield f"{terms.strategy} took {took_s:.1f} s to catch up after {name}, {terms.recover_within_s:g} s were allowed"


def _doubts(
    terms: Terms,
    counts: dict[Anomaly, int],
    judged: _Judged,
    drain: dict[str, Any],
    injections: list[dict[str, Any]],
    phases: dict[str, dict[str, Any]],
) -> Sequence[str]:
    doubts = []
    if not judged.found.acked:
        doubts.append("nothing was acknowledged, so nothing could be lost")
    if judged.results is not None and not judged.results["due"]:
        doubts.append("no result was due, so none could be missing")
    if not drain["complete"]:
        doubts.append(f"the drain did not reach the end of the output: {drain['reason']}")
    for injection in injections:
        missing = [claim["claim"] for claim in injection["evidence"] if not claim["holds"]]
        if not injection["bit"]:
            what = f"not shown: {', '.join(missing)}" if missing else injection["error"] or "no evidence was recorded"
            doubts.append(f"{injection['injection']} did not bite ({what})")
        if not injection["healed"]:
            doubts.append(f"{injection['injection']} was not healed")
    doubts += [f"no micro-batch was committed in the {phase} phase" for phase in PHASES if not phases.get(phase, {}).get("batches")]
    doubts += [f"the negative control did not bite: no {anomaly} record was found" for anomaly in terms.expected if not counts[anomaly]]
    return doubts


def _worst(injections: Sequence[dict[str, Any]], figure: str) -> float | None:
    return max((injection[figure] for injection in injections if injection[figure] is not None), default=None)


def _injection(name: str, events: Sequence[dict[str, Any]], seen: Flow) -> dict[str, Any]:
    """One planned injection, as the journal tells it, and what it cost."""
    mine = {event["event"]: event for event in events if event.get("injection") == name}
    started, injected, healed = mine.get("injection_started"), mine.get("injection_injected"), mine.get("injection_healed")
    claims = mine.get("injection_evidence", {}).get("claims", [])
    heals = (healed or {}).get("claims", [])
    cost = recovery(seen, milliseconds(injected["at"]) if injected else None, milliseconds(healed["at"]) if healed else None)
    return {
        "injection": name,
        "fault": started["fault"] if started else name.rsplit("-", 1)[0],
        "target": (injected or started or {}).get("target"),
        "parameters": (started or {}).get("parameters"),
        "phase": (started or {}).get("phase", "impact"),
        "injected_at": injected["at"] if injected else None,
        "healed_at": healed["at"] if healed else None,
        "evidence": claims,
        "heal": heals,
        "bit": bool(claims) and all(claim["holds"] for claim in claims),
        "healed": healed is not None and all(claim["holds"] for claim in heals),
        "error": mine.get("injection_failed", {}).get("error"),
        **asdict(cost),
    }


def _phases(events: Sequence[dict[str, Any]], progress: Sequence[dict[str, Any]], seen: Flow) -> dict[str, dict[str, Any]]:
    starts = [(event["phase"], milliseconds(event["at"]), event["at"]) for event in events if event["event"] == "phase"]
    commits = [milliseconds(line["committed_at"]) for line in progress]
    phases = {}
    for number, (phase, begun, stamp) in enumerate(starts):
        if phase not in PHASES:
            continue
        ended = starts[number + 1][1] if number + 1 < len(starts) else milliseconds(events[-1]["at"])
        records, records_per_s = throughput(seen, begun, ended)
        phases[phase] = {
            "started_at": stamp,
            "seconds": round((ended - begun) / 1000, 3),
            "batches": sum(begun <= commit < ended for commit in commits),
            "records": records,
            "records_per_s": records_per_s,
        }
    return phases


def _table(found: Reconciliation, findings: Sequence[Finding], evidence: Evidence, timeline: Timeline) -> pa.Table:
    sent, delivered = evidence.sent, evidence.delivered
    rows: list[dict[str, Any]] = []
    for finding in findings:
        at = finding.sent
        rows.append(
            {
                "row": "record",
                "anomaly": str(finding.anomaly),
                "producer": finding.producer,
                "sequence": finding.sequence,
                "partition": int(sent.partition[at]) if at is not None else None,
                "offset": int(sent.offset[at]) if at is not None and sent.offset[at] >= 0 else None,
                "copies": finding.copies,
                "blame": explain(finding, sent, delivered, evidence.delivered_at, timeline),
                "start": finding.start,
                "batch": finding.batch,
                "result": finding.result,
            }
        )
    for account in found.partitions:
        rows.append(
            {
                "row": "partition",
                "partition": account.partition,
                "acked": account.acked,
                "indeterminate": account.indeterminate,
                "rejected": account.rejected,
                "delivered": account.delivered,
                "lost": account.lost,
                "duplicated": account.duplicated,
            }
        )
    return pa.Table.from_pylist(rows, schema=RECONCILIATION)


def write_reconciliation(folder: RunFolder, table: pa.Table) -> None:
    write_table(folder.reconciliation, table)
