"""A run's evidence as tables, so that expectations can be stated in SQL.

The database ``expectations/evidence.sqlite`` is made anew from the run's folder each time. Its tables:

    ``summary``     one row: the verdict's counts, the drain, driver starts, batches, recovery
    ``phases``      one row per phase that a run must have: how many micro-batches were committed in it
    ``records``     one row per anomalous record; ``forbidden`` is 1 when the run's guarantee forbids its anomaly
    ``partitions``  one row per source partition: what was sent there, and what became of it
    ``claims``      one row per checked statement about an injection (``kind`` evidence) or its healing (``kind`` heal)
    ``injections``  one row per injection: when it struck, how long it took until there was new output, and until its backlog was gone
    ``offsets``     one row per source partition: how many acknowledged offsets, the highest of them, where the input ended
    ``expected``    one row per anomaly that the experiment wants to see (a negative control), with how many were

Records and claims are read from the reconciliation and the journal rather than from the verdict: the verdict is what they check. A table
whose file is missing is left out, so that an expectation over it is an error and never passes for want of rows.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.journal import EvidenceCheck, InjectionEvidence, InjectionFailed, InjectionHealed, InjectionStarted
from streamproof.verdict import guarantee
from streamproof.verdict.anomaly import RESULT_KINDS, Anomaly
from streamproof.verdict.checks import source
from streamproof.verdict.checks.records import KINDS
from streamproof.verdict.guarantee import Guarantee, Promise

PHASES = ("steady", "impact", "recovery")
RECORD_COLUMNS = ("anomaly", "producer", "sequence", "partition", "offset", "copies", "blame")
PARTITION_COLUMNS = ("partition", "acked", "indeterminate", "rejected", "delivered", "lost", "duplicated")

_TABLES = {
    "summary": """run TEXT, strategy TEXT, guarantee TEXT, acked INTEGER, indeterminate INTEGER, rejected INTEGER, delivered INTEGER,
        lost INTEGER, duplicated INTEGER, phantom INTEGER, corrupted INTEGER, drain_complete INTEGER, drain_reason TEXT,
        driver_starts INTEGER, batches INTEGER, steady_batches INTEGER, impact_batches INTEGER, recovery_batches INTEGER,
        recovery_s REAL, caught_up_s REAL, longest_gap_s REAL, reordered INTEGER, torn INTEGER, ahead INTEGER, wrong_results INTEGER,
        recover_within_s REAL""",
    "phases": "phase TEXT, batches INTEGER, records INTEGER, records_per_s REAL",
    "records": """anomaly TEXT, forbidden INTEGER, producer INTEGER, sequence INTEGER, partition INTEGER, "offset" INTEGER,
        copies INTEGER, blame TEXT""",
    "partitions": """partition INTEGER, acked INTEGER, indeterminate INTEGER, rejected INTEGER, delivered INTEGER, lost INTEGER,
        duplicated INTEGER""",
    "claims": "injection TEXT, fault TEXT, kind TEXT, claim TEXT, holds INTEGER, detail TEXT",
    "injections": """injection TEXT, fault TEXT, injected_at TEXT, healed_at TEXT, first_output_s REAL, caught_up_s REAL,
        backlog_records INTEGER, longest_gap_s REAL""",
    "offsets": "partition INTEGER, acked INTEGER, highest INTEGER, end_offset INTEGER",
    "expected": "anomaly TEXT, observed INTEGER",
}


def database(folder: RunFolder) -> Path:
    """Where a run's database lies."""
    return Path(folder.expectations) / "evidence.sqlite"


def forbidden(verdict: dict[str, Any]) -> frozenset[Anomaly]:
    """What the run's guarantee forbids, and its strategy's promises. Raises EvidenceError when the verdict names one that is not known."""
    try:
        promises = map(Promise, verdict.get("promises") or [])
        return guarantee.forbidden(Guarantee(verdict["guarantee"]), promises, stateful(verdict))
    except (KeyError, ValueError) as error:
        known = ", ".join(Guarantee)
        raise EvidenceError(f"verdict.json names no known guarantee (found {verdict.get('guarantee')!r}, known: {known})") from error


def stateful(verdict: dict[str, Any]) -> bool:
    """Whether the run was judged by results instead of records."""
    return verdict.get("results") is not None


def load(folder: RunFolder, verdict: dict[str, Any]) -> Path:
    """Write the run's database and return its path. Raises EvidenceError when a file that is there cannot be read."""
    path = database(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    connection = sqlite3.connect(temporary)
    try:
        connection.execute("PRAGMA synchronous = OFF")  # a database that is made anew from files need not survive a power cut
        _fill(connection, folder, verdict)
        connection.commit()
        connection.close()
        os.replace(temporary, path)
    finally:
        connection.close()
        temporary.unlink(missing_ok=True)
    return path


def _fill(connection: sqlite3.Connection, folder: RunFolder, verdict: dict[str, Any]) -> None:
    _write(connection, "summary", [_summary(verdict)])
    _write(connection, "phases", _phases(verdict))
    _write(connection, "claims", claims(folder, verdict))
    _write(connection, "injections", _injections(verdict))
    _write(connection, "offsets", _offsets(folder))
    _write(connection, "expected", [])
    if not folder.reconciliation.exists():
        return
    table = _reconciliation(folder.reconciliation)
    banned = forbidden(verdict)
    _write(connection, "records", [(row[0], int(row[0] in banned), *row[1:]) for row in _rows(table, "record", RECORD_COLUMNS)])
    _write(connection, "partitions", _rows(table, "partition", PARTITION_COLUMNS))
    connection.executemany(
        "INSERT INTO expected SELECT ?1, COUNT(*) FROM records WHERE anomaly = ?1",
        [(anomaly,) for anomaly in verdict.get("expected_anomalies") or []],
    )


def _write(connection: sqlite3.Connection, table: str, rows: Iterable[Sequence[Any]]) -> None:
    columns = _TABLES[table]
    connection.execute(f"CREATE TABLE {table} ({columns})")
    marks = ", ".join("?" * (columns.count(",") + 1))
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def _summary(verdict: dict[str, Any]) -> tuple[Any, ...]:
    sent, counts = verdict.get("sent") or {}, verdict.get("anomalies") or {}
    if stateful(verdict):
        counts = dict.fromkeys(KINDS, 0) | counts
    drain, phases = verdict.get("drain") or {}, verdict.get("phases") or {}
    return (
        verdict.get("run"),
        verdict.get("strategy"),
        verdict.get("guarantee"),
        *(sent.get(outcome) for outcome in ("acked", "indeterminate", "rejected")),
        verdict.get("delivered"),
        *(counts.get(anomaly) for anomaly in ("LOST", "DUPLICATED", "PHANTOM", "CORRUPTED")),
        int(bool(drain.get("complete"))),
        drain.get("reason"),
        verdict.get("driver_starts"),
        verdict.get("batches"),
        *((phases.get(phase) or {}).get("batches") for phase in PHASES),
        verdict.get("recovery_s"),
        verdict.get("caught_up_s"),
        verdict.get("longest_gap_s"),
        *(counts.get(anomaly) for anomaly in ("REORDERED", "TORN", "AHEAD")),
        sum(counts.get(anomaly, 0) for anomaly in RESULT_KINDS),
        verdict.get("recover_within_s"),
    )


def _phases(verdict: dict[str, Any]) -> list[tuple[Any, ...]]:
    """A phase that the run never entered has a row too, with no batches."""
    found = verdict.get("phases") or {}
    return [(name, *_counts_of(found.get(name) or {})) for name in PHASES]


def _offsets(folder: RunFolder) -> list[tuple[Any, ...]]:
    """Where the acknowledged records lie in the input. Its end is null where the drain did not look."""
    ends = source.read_ends(folder)
    return [(partition, acked, highest, ends.get(partition)) for partition, (acked, highest) in source.acknowledged(folder).items()]


def _counts_of(phase: dict[str, Any]) -> tuple[Any, ...]:
    return phase.get("batches") or 0, phase.get("records"), phase.get("records_per_s")


def _injections(verdict: dict[str, Any]) -> list[tuple[Any, ...]]:
    columns = ("injection", "fault", "injected_at", "healed_at", "first_output_s", "caught_up_s", "backlog_records", "longest_gap_s")
    return [tuple(injection.get(column) for column in columns) for injection in verdict.get("injections") or []]


def claims(folder: RunFolder, verdict: dict[str, Any]) -> list[tuple[str, str, str, str, int, str]]:
    """Every checked statement about every injection, planned or started, as the journal tells it: the columns of ``claims``.

    An injection of which nothing was checked has a row that does not hold. Healing without a claim is a heal that had nothing to undo.
    """
    names = {str(injection["injection"]): str(injection.get("fault")) for injection in verdict.get("injections") or []}
    # A stage that was repeated journals again: the last event counts.
    evidence = {event.injection: event.checks for event in folder.journal.all(InjectionEvidence)}
    healed = {event.injection: event.checks for event in folder.journal.all(InjectionHealed)}
    errors = {event.injection: event.error for event in folder.journal.all(InjectionFailed)}
    names |= {event.injection: event.fault for event in folder.journal.all(InjectionStarted)}
    for name in (*evidence, *healed, *errors):
        names.setdefault(name, name.rsplit("-", 1)[0])
    rows = []
    for name, fault in names.items():
        for check in evidence.get(name) or [EvidenceCheck("no evidence was recorded", False, errors.get(name, ""))]:
            rows.append((name, fault, "evidence", *_check(check)))
        nothing = EvidenceCheck("nothing had to be undone", True) if name in healed else EvidenceCheck("no heal was recorded", False)
        for check in healed.get(name) or [nothing]:
            rows.append((name, fault, "heal", *_check(check)))
    return rows


def _check(check: EvidenceCheck) -> tuple[str, int, str]:
    return check.check, int(check.passed), check.detail


def _reconciliation(path: Path) -> pa.Table:
    try:
        return pq.read_table(path, columns=list(dict.fromkeys(("row", *RECORD_COLUMNS, *PARTITION_COLUMNS))))
    except (OSError, pa.ArrowException) as error:
        raise EvidenceError(f"{path} cannot be read: {error}") from error


def _rows(table: pa.Table, kind: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    chosen = table.filter(pc.equal(table["row"], kind)).select(list(columns))
    return list(zip(*(chosen[column].to_pylist() for column in columns), strict=True))
