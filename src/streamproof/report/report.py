"""The run's report: one HTML file that holds all that a reader needs, opens from a disk, and asks nobody for anything.

It is rendered from whatever the run's folder holds. Of a run that was stopped or broke there may be little more than a journal: the report
then says what is missing rather than leaving it out. Of many anomalous records it shows some of each kind; ``anomalies.csv`` beside it has
all of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import yaml
from markupsafe import Markup

from streamproof.evidence import versions
from streamproof.evidence.coverage import Coverage
from streamproof.evidence.folder import EvidenceError, RunFolder, read_json_lines, write_atomically
from streamproof.evidence.journal import Event, InjectionStarted, RunCreated, StageFailed, StageFinished, StageStarted
from streamproof.evidence.stages import ORDER, REPORT
from streamproof.report import charts, pages, vega
from streamproof.report.checks import checks
from streamproof.report.timeline import timeline
from streamproof.suites.evaluate import Evaluation, results_path
from streamproof.verdict.checks.vanished import gaps
from streamproof.verdict.decide import PHASES
from streamproof.verdict.scan.scan import read_flow
from streamproof.verdict.stateful import reference
from streamproof.verdict.timing.recovery import Flow
from streamproof.verdict.verdict import Injection, Verdict, WindowCoverage

ANOMALIES = "anomalies.csv"
SHOWN_RECORDS = 200  # of each anomaly
SHOWN_BATCHES = 200
SHOWN_VERSIONS = 200
RECORD_COLUMNS = ("anomaly", "producer", "sequence", "partition", "offset", "copies", "blame")
PARTITION_COLUMNS = ("partition", "acked", "indeterminate", "rejected", "delivered", "lost", "duplicated")


@dataclass
class _Contents:
    """What the folder holds, and a sentence for each part that is not there."""

    verdict: Verdict | None = None
    events: list[Event] = field(default_factory=list)
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
    contents = _read(folder)
    verdict, environment = contents.verdict, pages.environment()
    environment.filters.update(number=_number, seconds=_seconds, words=_words, rate=_rate, times=_times)
    shown = timeline(contents.events, contents.progress, contents.flow)
    library = vega.library(kept)
    page = environment.get_template("report.html.j2").render(
        run=verdict.run if verdict is not None else folder.name,
        verdict=verdict,
        outcome=verdict.outcome if verdict is not None else "UNKNOWN",
        reason=verdict.reason if verdict is not None else "no verdict was written",
        facts=_facts(verdict, _of_a_user(contents.settings)) if verdict is not None else [],
        seed=_seed(contents),
        missing=contents.missing,
        timeline=shown,
        figure=charts.draw(shown) if shown else None,
        scripts=[Markup(library), Markup(vega.START)],
        allowed=vega.allowed(library, vega.START),
        batches_left_out=max(len(contents.progress) - SHOWN_BATCHES, 0),
        shown_batches=SHOWN_BATCHES,
        injections=_injections(folder, contents),
        windows=_passed(folder, contents),
        table_versions=_shown(folder, contents, shown.began if shown else None),
        shown_versions=SHOWN_VERSIONS,
        phases=[(phase, verdict.phases.get(phase) if verdict is not None else None) for phase in PHASES],
        records=contents.records,
        record_count=contents.record_count,
        beside=ANOMALIES,
        partitions=contents.partitions,
        baseline=verdict.baseline if verdict is not None else None,
        notes=verdict.notes if verdict is not None else (),
        forbidden=verdict.forbidden if verdict is not None else (),
        expected=verdict.expected_anomalies if verdict is not None else (),
        evaluation=contents.evaluation,
        stages=_stages(contents.events),
        versions=verdict.versions if verdict is not None else {},
        settings=contents.settings,
        rendered=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    path = Path(folder.report)
    write_atomically(path, page)
    return path


def _read(folder: RunFolder) -> _Contents:
    contents = _Contents()
    try:
        contents.verdict = Verdict.read(folder)
    except EvidenceError:
        contents.missing.append("verdict.json is missing or damaged: nobody judged this run.")
    try:
        contents.events, contents.progress = folder.journal.events(), list(read_json_lines(folder.progress))
    except EvidenceError as error:
        contents.missing.append(f"The timeline stops where its file is damaged: {error}.")
    if not contents.events:
        contents.missing.append("journal.jsonl is missing or empty: when things happened is not known.")
    if not contents.progress:
        contents.missing.append("progress.jsonl is missing or empty: the job committed no micro-batch, or nobody saw it.")
    try:
        contents.settings = folder.experiment.read_text()
    except OSError:
        contents.missing.append("experiment.yaml is missing: the run's settings are not known.")
    try:
        _read_reconciliation(folder, contents)
    except (OSError, pa.ArrowException):
        contents.missing.append("reconciliation.parquet is missing or damaged: which records were lost or doubled is not known.")
    try:
        contents.flow = reference.read_flow(folder) if folder.batches.exists() or folder.reference.exists() else read_flow(folder)
    except EvidenceError as error:
        contents.missing.append(f"How many records were waiting when is not known: {error}.")
    try:
        contents.evaluation = Evaluation.from_dict(json.loads(results_path(folder).read_text()))
    except (OSError, ValueError, TypeError, KeyError):
        contents.missing.append("expectations/results.json is missing or damaged: the expectations were not evaluated.")
    return contents


def _read_reconciliation(folder: RunFolder, contents: _Contents) -> None:
    table = pq.read_table(folder.reconciliation)
    records = table.filter(pc.equal(table["row"], "record")).select(list(RECORD_COLUMNS))
    contents.record_count = records.num_rows
    for anomaly in pc.unique(records["anomaly"]).to_pylist():
        contents.records += records.filter(pc.equal(records["anomaly"], anomaly)).slice(0, SHOWN_RECORDS).to_pylist()
    pyarrow.csv.write_csv(records, folder.path / ANOMALIES)
    partitions = table.filter(pc.equal(table["row"], "partition"))
    contents.partitions = partitions.select(list(PARTITION_COLUMNS)).to_pylist()


def _seed(contents: _Contents) -> int | None:
    if contents.verdict is not None:
        return contents.verdict.seed
    return next((event.seed for event in contents.events if isinstance(event, RunCreated)), None)


def _of_a_user(settings: str) -> bool:
    """Whether these settings of a run describe a job of the user's own, which has neither a pipeline nor a strategy of ours."""
    try:
        described = yaml.safe_load(settings)
    except yaml.YAMLError:
        return False
    return isinstance(described, dict) and described.get("job") is not None


def _facts(verdict: Verdict, of_a_user: bool) -> list[tuple[str, str]]:
    sent, drain, results = verdict.sent, verdict.drain, verdict.results
    ours = [("Pipeline", verdict.pipeline), ("Commit strategy", verdict.strategy)]
    facts = [*([("Job", verdict.strategy)] if of_a_user else ours), ("Guarantee", str(verdict.guarantee))]
    if sent is not None:
        unsure = [(sent.rejected, "rejected"), (sent.indeterminate, f"indeterminate ({sent.indeterminate_share:.1%})")]
        facts.append(("Sent", ", ".join([f"{_number(sent.acked)} acknowledged", *(f"{_number(n)} {what}" for n, what in unsure if n)])))
    if verdict.due is not None:
        facts.append(("Expected", f"{_number(verdict.due)} deliveries"))
    if verdict.delivered is not None:
        facts.append(("Delivered", _number(verdict.delivered)))
    if results is not None:
        facts.append(("Results", f"{_number(results.due)} due, {_number(results.late_records)} records too late to count"))
    if drain is not None:
        reached = "reached the end" if drain.complete else f"did not reach the end ({drain.reason or 'no reason was recorded'})"
        facts.append(("Drain", reached))
    if (twice := verdict.read_twice) is not None:
        facts.append(("Read twice", f"{_number(twice.records)} of {_number(twice.of)} delivered records"))
    if verdict.windows is not None:
        facts.append(("Windows", _windows(verdict.windows)))
    if verdict.not_judged:
        facts.append(("Not judged", "; ".join(verdict.not_judged)))
    counts = (("Micro-batches", verdict.batches), ("Driver starts", verdict.driver_starts))
    return facts + [(name, _number(count)) for name, count in counts if count is not None]


def _windows(windows: WindowCoverage) -> str:
    hit, missed = windows.hit, windows.missed
    said = f"killed in {len(hit)} of {len(windows.known)}"
    others = {window: [fault for fault in faults if window not in hit] for window, faults in windows.struck.items()}
    struck = [f"{window} ({', '.join(faults)})" for window, faults in others.items() if faults]
    parts = [f"{said}: {', '.join(hit)}" if hit else said]
    parts += [f"struck otherwise in {', '.join(struck)}"] if struck else []
    return "; ".join([*parts, *([f"not killed in: {', '.join(missed)}"] if missed else [])])


def _passed(folder: RunFolder, contents: _Contents) -> list[dict[str, Any]]:
    """A row for each window of the job: how long it was open beside the others (in percent of the longest), and what struck there."""
    covered = contents.verdict.windows if contents.verdict is not None else None
    try:
        coverage = Coverage.read(folder)
    except EvidenceError:
        return []
    if covered is None or coverage is None:
        return []
    longest = max((float(one["open_ms"]) for one in coverage.passed), default=0.0)
    return [
        {
            **one,
            "share": round(100 * float(one["open_ms"]) / longest) if longest else 0,
            "struck": covered.struck.get(f"{one['after']} > {one['before']}", ()),
            "killed": f"{one['after']} > {one['before']}" in covered.hit,
        }
        for one in coverage.passed
    ]


def _shown(folder: RunFolder, contents: _Contents, began: datetime | None) -> list[dict[str, Any]]:
    """What each version of the output showed, of an output that keeps some: ``lacks`` counts the records that an older one showed."""
    try:
        known = versions.known(folder)
        gone = gaps(folder, known)
    except EvidenceError as error:
        contents.missing.append(f"What the versions of the output showed is not known: {error}.")
        return []
    if known is None:
        return []
    count = len(known.told)
    lacks = np.zeros(count + 1, np.int64)
    np.add.at(lacks, gone.gone, 1)
    np.add.at(lacks, np.where(gone.back < 0, count, gone.back), -1)
    most = max((records for records in known.records if records is not None), default=0) or 1
    columns = zip(known.at_ms, known.told, known.added, known.removed, known.records, np.cumsum(lacks).tolist(), strict=False)
    return [
        {
            "second": None if began is None else at_ms / 1000 - began.timestamp(),
            "told": told,
            "added": added,
            "removed": removed,
            "records": records,
            "share": 0 if records is None else 100 * records / most,
            "lacks": lacking,
        }
        for at_ms, told, added, removed, records, lacking in columns
    ]


def _injections(folder: RunFolder, contents: _Contents) -> list[dict[str, Any]]:
    """The injections of the verdict, and those that only the journal knows, each with its evidence checks."""
    try:
        rows = checks(folder, contents.verdict.to_json() if contents.verdict is not None else {})
        coverage = Coverage.read(folder)
    except EvidenceError:
        return []
    judged = {injection.injection: injection for injection in contents.verdict.injections} if contents.verdict is not None else {}
    started = {event.injection: event for event in contents.events if isinstance(event, InjectionStarted)}
    where: dict[str, list[str]] = {}
    for situation in () if coverage is None else coverage.situations:
        where.setdefault(situation.injection, []).append(situation.told)
    injections = []
    for name in dict.fromkeys(row[0] for row in rows):
        mine = [row for row in rows if row[0] == name]
        result = judged.get(name) or Injection(injection=name, fault=mine[0][1], took_effect=False, healed=False)
        first = started.get(name)
        target = result.target or (first.target if first is not None else None)
        parameters = result.parameters or (first.parameters if first is not None else None)
        injections.append(
            {
                **result.model_dump(exclude={"evidence", "heal"}),
                "target": target and {key: value for key, value in target.items() if key != "strikes"},  # told by where it struck
                "parameters": {key: value for key, value in (parameters or {}).items() if value is not None},
                "fault": mine[0][1],
                "where": "; then ".join(where.get(name, ())),
                "checks": [{"kind": row[2], "check": row[3], "passed": bool(row[4]), "detail": row[5]} for row in mine],
            }
        )
    return injections


def _stages(events: Sequence[Event]) -> list[tuple[str, str, float | None]]:
    """Each stage that was started before this one: its name, how it ended, and its seconds. One that was repeated counts as it ended
    last."""
    ends: dict[str, tuple[str, float | None]] = {}
    for event in events:
        if isinstance(event, StageStarted):
            ends[event.stage] = ("not finished", None)
        elif isinstance(event, StageFinished):
            ends[event.stage] = ("finished", event.seconds)
        elif isinstance(event, StageFailed):
            ends[event.stage] = (f"failed: {event.error}", None)
    ends.pop(REPORT, None)
    order = {stage: number for number, stage in enumerate(ORDER)}
    return [(stage, *ends[stage]) for stage in sorted(ends, key=lambda stage: order.get(stage, len(order)))]


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
        shown = {key: _clock(item) if key.endswith("created") else item for key, item in value.items() if item is not None}
        return ", ".join(f"{key} {_words(item)}" for key, item in shown.items()) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value))
    return "–" if value is None else str(value)
