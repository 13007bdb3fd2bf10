"""The anomalies of a stateful job's results, as views: windows and joins computed again from what the job was given.

    missing        name    a result that is due, without a delivered copy
    unexpected     name    a delivered result that the recomputation does not give; one row for each delivery that is not a result
    wrong_value    name    a delivered result whose value differs from the recomputation
    repeated       name    a result that was delivered more than once
    dropped        start, batch    a micro-batch that dropped another number of late rows than the declared delay requires

Watermarks are computed by a walk over the batches, results by joins and groups. These queries need a known outcome of every send: they
compute no bounds for unknown ones. Nor do they compute sessions, de-duplication and totals. In these cases the views are left out, and
``unjudged`` has a row with the reason.

Read first: ``input``, each record that the job read, with its batch and that batch's watermarks.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from . import files, results_by_sql

ANOMALIES = ("missing", "unexpected", "wrong_value", "repeated", "dropped")
NO_RESULT = "something that is no result"

_EVENTS = "sequence BIGINT, stream INTEGER, at BIGINT, key VARCHAR, value BIGINT"
_PAYLOADS = """partition INTEGER, "offset" BIGINT, batch BIGINT, attempt INTEGER, start INTEGER, delivered_at TIMESTAMPTZ, key BLOB,
    value BLOB"""
_NEEDED = ("batch", "start", "until", "dropped", "committed_at")
_BATCHES = {"place": "BIGINT", "batch": "BIGINT", "start": "BIGINT", "dropped": "BIGINT", "committed_ms": "BIGINT"}
_UNSETTLED = """
    SELECT count(*) FROM events LEFT JOIN sent USING (sequence) WHERE sent.outcome IS NULL OR sent.outcome = 'INDETERMINATE'"""
_UNKNOWN = """
    SELECT count(*) FILTER (outcome = 'INDETERMINATE') + greatest((SELECT coalesce(sum(count), 0) FROM intents) - count(*), 0) FROM sent"""
_READ = """
    SELECT s.producer, s.sequence, epoch_ms(s.sent_at) AS sent_ms, coalesce(r.place, (SELECT max(place) FROM batches)) AS place
    FROM sent AS s ASOF LEFT JOIN (SELECT partition, until, min(place) AS place FROM batch_ends GROUP BY partition, until) AS r
    ON s.partition = r.partition AND s."offset" < r.until WHERE s.outcome = 'ACKED'"""
_HIGHEST = 'SELECT place, stream, max(events."at") FROM read JOIN events USING (sequence) GROUP BY place, stream'
_INPUT = """
    SELECT read.producer, read.sequence, events.stream, events."at" AS moment, events.key, events.value, place, watermarks.late
    FROM read JOIN events USING (sequence) JOIN watermarks USING (place)"""
_WINDOWS = {
    "spread": """
        SELECT *, moment - moment % {slide} - n * {slide} AS begun
        FROM input, range(CAST(ceil({length} / {slide}) AS BIGINT)) AS r(n)
        WHERE moment - moment % {slide} - n * {slide} + {length} > moment""",
    "due": """
        SELECT 'the window of ' || key || ' from ' || strftime(make_timestamp(begun * 1000), '%Y-%m-%d %H:%M') AS name,
               count(*) || ' ' || sum(value) AS text
        FROM spread WHERE begun + {length} > late GROUP BY key, begun HAVING begun + {length} <= {final}""",
    "late_rows": """
        SELECT place, count(DISTINCT (key, begun)) AS late_rows FROM spread WHERE begun + {length} <= late GROUP BY place""",
}
_JOIN = {
    "pairs": """
        SELECT l.producer AS lp, l.sequence AS ls, l.moment, l.value AS lv, r.producer AS rp, r.sequence AS rs, r.value AS rv
        FROM (FROM input WHERE moment > late AND stream = 0) AS l LEFT JOIN (FROM input WHERE moment > late AND stream = 1) AS r
        ON l.key = r.key AND r.moment BETWEEN l.moment - {before} AND l.moment + {after}""",
    "due": """
        SELECT 'record ' || lp || '/' || ls || coalesce(' joined with record ' || rp || '/' || rs, ' without a partner') AS name,
               lv || ' ' || coalesce(CAST(rv AS VARCHAR), '-') AS text
        FROM pairs WHERE rp IS NOT NULL OR ({outer} AND moment + {after} + {margin} <= {final})""",
    "late_rows": "SELECT place, count(*) AS late_rows FROM input WHERE moment <= late GROUP BY place",
}
_VIEWS = {
    "missing": "SELECT name, text AS due FROM due ANTI JOIN delivered_results USING (name)",
    "unexpected": f"""
        SELECT name, any_value(text) AS text FROM delivered_results ANTI JOIN due USING (name) WHERE name IS NOT NULL GROUP BY name
        UNION ALL
        SELECT '{NO_RESULT}', NULL FROM delivered_results WHERE name IS NULL""",
    "wrong_value": """
        SELECT name, any_value(delivered_results.text) AS text, any_value(due.text) AS due FROM delivered_results JOIN due USING (name)
        WHERE delivered_results.text <> due.text GROUP BY name""",
    "repeated": "SELECT name, count(*) AS copies FROM delivered_results SEMI JOIN due USING (name) GROUP BY name HAVING count(*) > 1",
    "dropped": """
        SELECT batches.start, batches.batch, batches.dropped, coalesce(late_rows.late_rows, 0) AS due
        FROM batches LEFT JOIN late_rows USING (place)
        WHERE batches.dropped IS NOT NULL AND batches.dropped <> coalesce(late_rows.late_rows, 0)""",
}


def define(connection: duckdb.DuckDBPyConnection, folder: Path, computation: dict[str, Any], keep: Collection[str] = ()) -> None:
    """Define the views, as far as the results can be computed. ``computation`` is what the job declares: a ``kind``, and its numbers."""
    by_sql = computation["kind"] == "sql"
    batches = _reported(folder / "progress.jsonl") if by_sql else _batches(folder / "batches.jsonl")
    if by_sql:
        results_by_sql.given(connection, folder)
    else:
        files.parquet(connection, "events", folder / "events.parquet", _EVENTS)
    files.parquet(connection, "payloads", folder / "payloads", _PAYLOADS)
    rows = [[place, line["batch"], line["start"], line["dropped"], _moment(line)] for place, line in enumerate(batches)]
    files.table(connection, "batches", _BATCHES, rows)
    ends = ([place, partition, until] for place, line in enumerate(batches) for partition, until in line["until"].items())
    files.table(connection, "batch_ends", {"place": "BIGINT", "partition": "INTEGER", "until": "BIGINT"}, ends)
    output = """
        SELECT read.sent_ms, true AS waited, batches.committed_ms AS at_ms, false AS untimed FROM read JOIN batches USING (place)"""
    files.define(connection, {"read": _READ, "output": output}, {"read"})
    reason = _unjudged(connection, batches, computation)
    files.table(connection, "unjudged", {"reason": "VARCHAR"}, [] if reason is None else [[reason]])
    if reason is None and by_sql:
        results_by_sql.define(connection, computation, keep)
    elif reason is None:
        _compute(connection, batches, computation, keep)


def _unjudged(connection: duckdb.DuckDBPyConnection, batches: list[dict[str, Any]], computation: dict[str, Any]) -> str | None:
    """Why the results are not computed again here."""
    if computation["kind"] not in ("windows", "join", "sql"):
        return f"{computation['kind']} are not computed again in SQL"
    ((unsettled,),) = connection.execute(_UNSETTLED if computation["kind"] != "sql" else _UNKNOWN).fetchall()
    if unsettled:
        return f"{unsettled} sends have an unknown outcome"
    return None if batches else "no micro-batch ran"


def _compute(
    connection: duckdb.DuckDBPyConnection, batches: list[dict[str, Any]], computation: dict[str, Any], keep: Collection[str]
) -> None:
    highest = {(int(place), int(stream)): int(at) for place, stream, at in connection.execute(_HIGHEST).fetchall()}
    marks = _walk(batches, highest, computation["delays_ms"])
    late = [[place, marks[place - 1] if place else 0] for place in range(len(marks))]
    files.table(connection, "watermarks", {"place": "BIGINT", "late": "BIGINT"}, late)
    described = [list(_described(row[0], computation["kind"])) for row in connection.execute("SELECT value FROM payloads").fetchall()]
    files.table(connection, "delivered_results", {"name": "VARCHAR", "text": "VARCHAR"}, described)
    views, numbers = (_WINDOWS, _of_windows(computation)) if computation["kind"] == "windows" else (_JOIN, _of_join(computation))
    filled = {name: query.format(**numbers, final=marks[-1]) for name, query in views.items()}
    files.define(connection, {"input": _INPUT, **filled, **_VIEWS}, {"input", "due", "late_rows", *keep})


def _of_windows(computation: dict[str, Any]) -> dict[str, int]:
    return {"length": int(computation["length_ms"]), "slide": int(computation["slide_ms"])}


def _of_join(computation: dict[str, Any]) -> dict[str, Any]:
    before, after = int(computation["before_ms"]), int(computation["after_ms"])
    return {"before": before, "after": after, "margin": int(bool(before or after)), "outer": bool(computation["outer"])}


def _batches(path: Path) -> list[dict[str, Any]]:
    """The batches in the order in which they ran. One that ran again, with the same number and input, is the later one in the earlier's
    place. Raises Unreadable naming one that is missing."""
    latest: dict[str, dict[str, Any]] = {}
    for line in files.lines(path, *_NEEDED):
        latest[json.dumps([line["batch"], line["until"]], sort_keys=True)] = line
    expected = 0
    for line in latest.values():
        if line["batch"] > expected:
            raise files.Unreadable(f"{path} is damaged evidence: batch {expected} is missing")
        expected = line["batch"] + 1
    return list(latest.values())


def _reported(path: Path) -> list[dict[str, Any]]:
    """The commits of a job that says nothing of watermarks: each reads up to where it committed."""
    return [{**line, "dropped": None} for line in files.lines(path, "batch", "start", "until", "committed_at")]


def _moment(line: dict[str, Any]) -> int:
    return files.milliseconds(line["committed_at"])


def _walk(batches: list[dict[str, Any]], highest: dict[tuple[int, int], int], delays: list[int]) -> list[int]:
    """The watermark of each batch."""
    marks: list[int] = []
    mark, seen, start = 0, dict.fromkeys(range(len(delays)), 0), None
    for place, batch in enumerate(batches):
        if batch["start"] != start:
            seen, start = dict.fromkeys(seen, 0), batch["start"]
        marks.append(mark)
        for stream, delay in enumerate(delays):
            seen[stream] = max(seen[stream], highest.get((place, stream), 0) - delay)
        mark = max(mark, min(seen.values()))
    return marks


def _described(value: bytes | None, kind: str) -> tuple[str | None, str | None]:
    """The name and the values of one delivered result; two times None when it is not a result."""
    try:
        result = json.loads(value or b"")
        if kind == "windows":
            begin = datetime.fromtimestamp(int(result["begin"]) / 1000, UTC).strftime("%Y-%m-%d %H:%M")
            return f"the window of {result['key']} from {begin}", f"{int(result['count'])} {int(result['sum'])}"
        right, value_there = result.get("right"), result.get("right_value")
        partner = "without a partner" if right is None else f"joined with record {_record(right)}"
        values = f"{int(result['left_value'])} {'-' if value_there is None else int(value_there)}"
        return f"record {_record(result['left'])} {partner}", values
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None, None


def _record(text: Any) -> str:
    producer, sequence = str(text).split("-")[:2]
    return f"{int(producer, 16)}/{int(sequence, 16)}"
