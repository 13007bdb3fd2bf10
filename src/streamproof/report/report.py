"""The run's report: one HTML file that holds all that a reader needs, opens from a disk, and asks nobody for anything.

It is rendered from whatever the run's folder holds. Of a run that was stopped or broke there may be little more than a journal: the report
then says what is missing rather than leaving it out. Of many anomalous records it shows some of each kind; ``anomalies.csv`` beside it has
all of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from markupsafe import Markup

from streamproof.evidence.folder import EvidenceError, RunFolder, read_json_lines, write_atomically
from streamproof.report import charts, pages, vega
from streamproof.report.claims import claims
from streamproof.report.timeline import timeline
from streamproof.suites.evaluate import Evaluation, results_path
from streamproof.verdict.scan.scan import read_flow
from streamproof.verdict.stateful import reference
from streamproof.verdict.timing.recovery import Flow

ANOMALIES = "anomalies.csv"
SHOWN_RECORDS = 200  # of each anomaly
SHOWN_BATCHES = 200
PHASES = ("steady", "impact", "recovery")
RECORD_COLUMNS = ("anomaly", "producer", "sequence", "partition", "offset", "copies", "blame")
PARTITION_COLUMNS = ("partition", "acked", "indeterminate", "rejected", "delivered", "lost", "duplicated")
STEPS = ("prepare", "run_pipeline", "generate_load", "inject_faults", "drain", "verify", "expect", "restore")


@dataclass
class _Found:
    """What the folder holds, and a sentence for each part that is not there."""

    verdict: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    progress: list[dict[str, Any]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    record_count: int = 0
    partitions: list[dict[str, Any]] = field(default_factory=list)
    evaluation: Evaluation | None = None
    flow: Flow | None = None
    settings: str = ""
    missing: list[str] = field(default_factory=list)


def render(folder: RunFolder, kept: Path | None = None) -> Path:
    """Write the run's ``report.html`` and return its path. ``kept`` is a folder in which the charts' library is looked for, and left."""
    found = _read(folder)
    environment = pages.environment()
    environment.filters.update(number=_number, seconds=_seconds, words=_words, rate=_rate, times=_times)
    shown = timeline(found.events, found.progress, found.flow)
    library = vega.library(kept)
    page = environment.get_template("report.html.j2").render(
        run=found.verdict.get("run") or folder.name,
        verdict=found.verdict,
        outcome=found.verdict.get("outcome") or "UNKNOWN",
        reason=found.verdict.get("reason") or "no verdict was written",
        facts=_facts(found.verdict),
        seed=_seed(found),
        missing=found.missing,
        timeline=shown,
        figure=charts.draw(shown) if shown else None,
        scripts=[Markup(library), Markup(vega.START)],
        allowed=vega.allowed(library, vega.START),
        batches_left_out=max(len(found.progress) - SHOWN_BATCHES, 0),
        shown_batches=SHOWN_BATCHES,
        injections=_injections(folder, found),
        phases=[(phase, (found.verdict.get("phases") or {}).get(phase)) for phase in PHASES],
        records=found.records,
        record_count=found.record_count,
        beside=ANOMALIES,
        partitions=found.partitions,
        baseline=found.verdict.get("baseline"),
        notes=found.verdict.get("notes") or [],
        forbidden=found.verdict.get("forbidden") or [],
        expected=found.verdict.get("expected_anomalies") or [],
        evaluation=found.evaluation,
        steps=_steps(found.events),
        versions=found.verdict.get("versions") or {},
        settings=found.settings,
        rendered=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    path = Path(folder.report)
    write_atomically(path, page)
    return path


def _read(folder: RunFolder) -> _Found:
    found = _Found()
    try:
        verdict = folder.read_json(folder.verdict)
        found.verdict = verdict if isinstance(verdict, dict) else {}
    except EvidenceError:
        found.missing.append("verdict.json is missing or damaged: nobody judged this run.")
    try:
        found.events, found.progress = folder.journal.events(), list(read_json_lines(folder.progress))
    except EvidenceError as error:
        found.missing.append(f"The timeline stops where its file is damaged: {error}.")
    if not found.events:
        found.missing.append("journal.jsonl is missing or empty: when things happened is not known.")
    if not found.progress:
        found.missing.append("progress.jsonl is missing or empty: the job committed no micro-batch, or nobody saw it.")
    try:
        found.settings = folder.experiment.read_text()
    except OSError:
        found.missing.append("experiment.yaml is missing: the run's settings are not known.")
    try:
        _read_reconciliation(folder, found)
    except (OSError, pa.ArrowException):
        found.missing.append("reconciliation.parquet is missing or damaged: which records were lost or doubled is not known.")
    try:
        found.flow = reference.read_flow(folder) if folder.batches.exists() else read_flow(folder)
    except EvidenceError as error:
        found.missing.append(f"How many records were waiting when is not known: {error}.")
    try:
        found.evaluation = Evaluation.from_dict(json.loads(results_path(folder).read_text()))
    except (OSError, ValueError, TypeError, KeyError):
        found.missing.append("expectations/results.json is missing or damaged: the expectations were not evaluated.")
    return found


def _read_reconciliation(folder: RunFolder, found: _Found) -> None:
    table = pq.read_table(folder.reconciliation)
    records = table.filter(pc.equal(table["row"], "record")).select(list(RECORD_COLUMNS))
    found.record_count = records.num_rows
    for anomaly in pc.unique(records["anomaly"]).to_pylist():
        found.records += records.filter(pc.equal(records["anomaly"], anomaly)).slice(0, SHOWN_RECORDS).to_pylist()
    pyarrow.csv.write_csv(records, folder.path / ANOMALIES)
    partitions = table.filter(pc.equal(table["row"], "partition"))
    found.partitions = partitions.select(list(PARTITION_COLUMNS)).to_pylist()


def _seed(found: _Found) -> Any:
    created = next((event for event in found.events if event["event"] == "run_created"), {})
    return found.verdict.get("seed", created.get("seed"))


def _facts(verdict: dict[str, Any]) -> list[tuple[str, str]]:
    sent, drain = verdict.get("sent") or {}, verdict.get("drain") or {}
    results = verdict.get("results")
    unsure = [f"{_number(sent[outcome])} {outcome}" for outcome in ("rejected", "indeterminate") if sent.get(outcome)]
    reached = "reached the end" if drain.get("complete") else f"did not reach the end ({drain.get('reason') or 'no reason was recorded'})"
    facts = [
        ("Pipeline", verdict.get("pipeline")),
        ("Commit strategy", verdict.get("strategy")),
        ("Guarantee", verdict.get("guarantee")),
        ("Sent", f"{_number(sent['acked'])} acknowledged{''.join(f', {one}' for one in unsure)}" if "acked" in sent else None),
        ("Delivered", _number(verdict["delivered"]) if verdict.get("delivered") is not None else None),
        ("Results", f"{_number(results['due'])} due, {_number(results['late_records'])} records too late to count" if results else None),
        ("Drain", reached if drain else None),
        ("Micro-batches", _number(verdict["batches"]) if verdict.get("batches") is not None else None),
        ("Driver starts", _number(verdict["driver_starts"]) if verdict.get("driver_starts") is not None else None),
    ]
    return [(name, str(value)) for name, value in facts if value]


def _injections(folder: RunFolder, found: _Found) -> list[dict[str, Any]]:
    """The injections of the verdict, and those that only the journal knows, each with its claims."""
    try:
        rows = claims(folder, found.verdict)
    except EvidenceError:
        return []
    told = {str(one["injection"]): one for one in found.verdict.get("injections") or []}
    started = {str(event["injection"]): event for event in found.events if event["event"] == "injection_started"}
    names = list(dict.fromkeys(row[0] for row in rows))
    return [
        {
            "target": None,
            "parameters": None,
            **dict.fromkeys(("first_output_s", "caught_up_s", "backlog_records", "longest_gap_s", "injected_at")),
            "error": None,
            **{key: value for key, value in started.get(name, {}).items() if key in ("target", "parameters")},
            **{key: value for key, value in told.get(name, {}).items() if value is not None},
            "injection": name,
            "fault": next(row[1] for row in rows if row[0] == name),
            "claims": [{"kind": row[2], "claim": row[3], "holds": bool(row[4]), "detail": row[5]} for row in rows if row[0] == name],
        }
        for name in names
    ]


def _steps(events: list[dict[str, Any]]) -> list[tuple[str, str, Any]]:
    """Each step that was started before this one: its name, how it ended, and its seconds. What was repeated counts as it ended last."""
    ends: dict[str, tuple[str, Any]] = {}
    for event in events:
        if event["event"] == "step_started":
            ends[event["step"]] = ("not finished", None)
        elif event["event"] == "step_finished":
            ends[event["step"]] = ("finished", event.get("seconds"))
        elif event["event"] == "step_failed":
            ends[event["step"]] = (f"failed: {event.get('error')}", None)
    ends.pop("report", None)
    order = {step: number for number, step in enumerate(STEPS)}
    return [(step, *ends[step]) for step in sorted(ends, key=lambda step: order.get(step, len(order)))]


def _number(value: Any) -> str:
    """A count with its thousands apart, in a space that does not break."""
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else str(value)


def _seconds(value: Any) -> str:
    return "–" if value is None else f"{float(value):.1f} s"


def _rate(value: Any) -> str:
    return "–" if value is None else f"{_number(round(float(value)))}/s"


def _times(value: Any) -> str:
    """A ratio to the baseline."""
    return "–" if value is None else f"{float(value):.2f} ×"


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S UTC")


def _words(value: Any) -> str:
    """A target or parameters as words: ``pid 4711, executor 2``. A process is told from another of its pid by when it was created."""
    if isinstance(value, dict):
        told = {key: _clock(one) if key.endswith("created") else one for key, one in value.items() if one is not None}
        return ", ".join(f"{key} {_words(one)}" for key, one in told.items()) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value))
    return "–" if value is None else str(value)
