"""The results of windows and joins computed a second time, by other means: SQL over the same files, in DuckDB.

As :mod:`streamproof.verdict.second_opinion` is for records: written from the definitions and not from the checkers' code. Watermarks are a
walk over the batches, results are joins and groups. Only where every send has a known outcome: what is allowed beside INDETERMINATE ones is
a matter of bounds, which only the checkers know; likewise sessions, de-duplication and totals have no second opinion.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamproof.evidence.batches import Batch, read_batches
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.histories import SENT, files
from streamproof.evidence.payloads import PAYLOADS
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.matching import Finding
from streamproof.verdict.stateful.reference import Declaration, Join, Windows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SHOWN = 3
Named = tuple[str, ...]

_ALONE: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_UNSETTLED = """
    SELECT count(*) FROM events LEFT JOIN sent USING (sequence) WHERE sent.outcome IS NULL OR sent.outcome = 'INDETERMINATE'
"""
_GIVEN = """
    CREATE TEMP TABLE given AS
    SELECT s.producer, s.sequence, e.stream, e."at" AS moment, e.key, e.value, r.place
    FROM sent AS s JOIN events AS e USING (sequence)
    ASOF LEFT JOIN (
        SELECT partition, until, min(place) AS place FROM reach GROUP BY partition, until
    ) AS r ON s.partition = r.partition AND s."offset" < r.until
    WHERE s.outcome = 'ACKED'
"""
_HIGHEST = "SELECT coalesce(place, $last) AS place, stream, max(moment) FROM given GROUP BY ALL"
_MARKED = """
    CREATE TEMP TABLE input AS
    SELECT g.* REPLACE (coalesce(g.place, $last) AS place), m.late, m.mark
    FROM given AS g JOIN marks AS m ON m.place = coalesce(g.place, $last)
"""
_WINDOWS = """
    CREATE TEMP TABLE spread AS
    SELECT *, moment - moment % $slide - n * $slide AS begun
    FROM input, range(CAST(ceil($length / $slide) AS BIGINT)) AS r(n) WHERE moment - moment % $slide - n * $slide + $length > moment;
    CREATE TEMP TABLE due AS
    SELECT 'the window of ' || key || ' from ' || strftime(make_timestamp(begun * 1000), '%Y-%m-%d %H:%M') AS name,
        count(*) || ' ' || sum(value) AS said
    FROM spread WHERE begun + $length > late GROUP BY key, begun HAVING begun + $length <= $final;
    CREATE TEMP TABLE late_rows AS
    SELECT place, count(DISTINCT (key, begun)) AS rows FROM spread WHERE begun + $length <= late GROUP BY place;
"""
_JOIN = """
    CREATE TEMP TABLE kept AS SELECT * FROM input WHERE moment > late;
    CREATE TEMP TABLE pair AS
    SELECT l.producer AS lp, l.sequence AS ls, l.moment, l.value AS lv, r.producer AS rp, r.sequence AS rs, r.value AS rv
    FROM (FROM kept WHERE stream = 0) AS l LEFT JOIN (FROM kept WHERE stream = 1) AS r
    ON l.key = r.key AND r.moment BETWEEN l.moment - $before AND l.moment + $after;
    CREATE TEMP TABLE due AS
    SELECT 'record ' || lp || '/' || ls || coalesce(' joined with record ' || rp || '/' || rs, ' without a partner') AS name,
        lv || ' ' || coalesce(CAST(rv AS VARCHAR), '-') AS said
    FROM pair WHERE rp IS NOT NULL OR ($outer AND moment + $after + $margin <= $final);
    CREATE TEMP TABLE late_rows AS SELECT place, count(*) AS rows FROM input WHERE moment <= late GROUP BY place;
"""
_QUERIES: dict[Anomaly, str] = {
    Anomaly.MISSING: "SELECT name FROM due ANTI JOIN told USING (name)",
    Anomaly.UNEXPECTED: "SELECT DISTINCT name FROM told ANTI JOIN due USING (name) WHERE name IS NOT NULL",
    Anomaly.WRONG_VALUE: "SELECT DISTINCT name FROM told JOIN due USING (name) WHERE told.said <> due.said",
    Anomaly.REPEATED: "SELECT name FROM told SEMI JOIN due USING (name) GROUP BY name HAVING count(*) > 1",
    Anomaly.DROPPED: """
        SELECT ran.start || ' ' || ran.number FROM ran LEFT JOIN late_rows USING (place)
        WHERE ran.dropped IS NOT NULL AND ran.dropped <> coalesce(late_rows.rows, 0)""",
}


def disagreement(folder: RunFolder, declared: Declaration, findings: Iterable[Finding]) -> str | None:
    """A sentence on what only one of the two found; None when they agree, or there is no second opinion."""
    if not isinstance(declared, Windows | Join):
        return None
    second = find(folder, declared)
    if second is None:
        return None
    readable = (finding for finding in findings if finding.about or finding.anomaly is Anomaly.DROPPED)
    first = Counter(_named(finding) for finding in readable)
    only_first, only_second = first - second, second - first
    if not only_first and not only_second:
        return None
    told = [f"only the {who} names {_shown(found)}" for who, found in (("checker", only_first), ("second opinion", only_second)) if found]
    return f"the checker and the second opinion do not agree: {'; '.join(told)}"


def find(folder: RunFolder, declared: Windows | Join) -> Counter[Named] | None:
    """The anomalies, each as (anomaly, name); None when a send has no outcome that is known. Raises EvidenceError."""
    import duckdb

    batches = read_batches(folder.batches)
    with duckdb.connect(config=_ALONE) as connection:
        try:
            if not _load(connection, folder, batches, declared):
                return None
            found: Counter[Named] = Counter()
            for anomaly, query in _QUERIES.items():
                found.update((str(anomaly), str(row[0])) for row in connection.execute(query).fetchall())
        except duckdb.Error as error:
            raise EvidenceError(f"{folder.path}: the second opinion cannot read the evidence: {error}") from error
    return found


def _load(connection: DuckDBPyConnection, folder: RunFolder, batches: tuple[Batch, ...], declared: Windows | Join) -> bool:
    for name, paths, schema in (("sent", files(folder.sent), SENT), ("payloads", files(folder.payloads), PAYLOADS)):
        if paths:
            connection.read_parquet([str(path) for path in paths]).create_view(name)
        else:
            connection.from_arrow(schema.empty_table()).create_view(name)
    connection.read_parquet(str(folder.events)).create_view("events")
    ((unsettled,),) = connection.execute(_UNSETTLED).fetchall()
    if unsettled or not batches:
        return False
    last = len(batches) - 1
    _table(connection, "reach", [("place", int), ("partition", int), ("until", int)], _reach(batches))
    ran = [(place, batch.number, batch.start, batch.dropped) for place, batch in enumerate(batches)]
    _table(connection, "ran", [("place", int), ("number", int), ("start", int), ("dropped", int)], ran)
    connection.execute(_GIVEN)
    highest = {(int(place), int(stream)): int(at) for place, stream, at in connection.execute(_HIGHEST, {"last": last}).fetchall()}
    marks = _walk(batches, highest, declared.delays_ms)
    rows = [(place, marks[place - 1] if place else 0, mark) for place, mark in enumerate(marks)]
    _table(connection, "marks", [("place", int), ("late", int), ("mark", int)], rows)
    connection.execute(_MARKED, {"last": last})
    statements, known = (_WINDOWS, _of_windows(declared)) if isinstance(declared, Windows) else (_JOIN, _of_join(declared))
    for statement in filter(str.strip, statements.split(";")):
        used = {name: value for name, value in {**known, "final": marks[-1]}.items() if f"${name}" in statement}
        connection.execute(statement, used)
    told = [_told(row[0], declared) for row in connection.execute("SELECT value FROM payloads").fetchall()]
    _table(connection, "told", [("name", str), ("said", str)], told)
    return True


def _of_windows(declared: Windows) -> dict[str, Any]:
    return {"length": declared.length_ms, "slide": declared.slide_ms}


def _of_join(declared: Join) -> dict[str, Any]:
    margin = int(bool(declared.before_ms or declared.after_ms))
    return {"before": declared.before_ms, "after": declared.after_ms, "margin": margin, "outer": declared.outer}


def _reach(batches: tuple[Batch, ...]) -> list[tuple[int, int, int]]:
    return [(place, int(partition), until) for place, batch in enumerate(batches) for partition, until in batch.until.items()]


def _walk(batches: tuple[Batch, ...], highest: dict[tuple[int, int], int], delays: tuple[int, ...]) -> list[int]:
    """The watermark of each batch."""
    marks: list[int] = []
    mark, seen, start = 0, dict.fromkeys(range(len(delays)), 0), None
    for place, batch in enumerate(batches):
        if batch.start != start:
            seen, start = dict.fromkeys(seen, 0), batch.start
        marks.append(mark)
        for stream, delay in enumerate(delays):
            seen[stream] = max(seen[stream], highest.get((place, stream), 0) - delay)
        mark = max(mark, min(seen.values()))
    return marks


def _told(value: bytes | None, declared: Windows | Join) -> tuple[str | None, str | None]:
    """What one delivered result is about, and what it says; nothing for what is no result."""
    try:
        found = json.loads(value or b"")
        if isinstance(declared, Windows):
            begin = datetime.fromtimestamp(int(found["begin"]) / 1000, UTC).strftime("%Y-%m-%d %H:%M")
            return f"the window of {found['key']} from {begin}", f"{int(found['count'])} {int(found['sum'])}"
        right, value_there = found.get("right"), found.get("right_value")
        partner = "without a partner" if right is None else f"joined with record {_record(right)}"
        return (
            f"record {_record(found['left'])} {partner}",
            f"{int(found['left_value'])} {'-' if value_there is None else int(value_there)}",
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None, None


def _record(text: Any) -> str:
    producer, sequence = str(text).split("-")[:2]
    return f"{int(producer, 16)}/{int(sequence, 16)}"


def _named(finding: Finding) -> Named:
    if finding.anomaly is Anomaly.DROPPED:
        return str(finding.anomaly), f"{finding.start} {finding.batch}"
    return str(finding.anomaly), str(finding.result)


def _shown(found: Counter[Named]) -> str:
    some = sorted(found)[:SHOWN]
    more = found.total() - len(some)
    return ", ".join(f"{anomaly} {name}" for anomaly, name in some) + (f" and {more} more" if more else "")


def _table(connection: DuckDBPyConnection, name: str, columns: list[tuple[str, type]], rows: list[tuple[Any, ...]]) -> None:
    kinds = {int: pa.int64(), str: pa.string()}
    schema = pa.schema([(column, kinds[kind]) for column, kind in columns])
    held = pa.table({column: [row[at] for row in rows] for at, (column, _) in enumerate(columns)}, schema=schema)
    connection.from_arrow(held).create(name)
