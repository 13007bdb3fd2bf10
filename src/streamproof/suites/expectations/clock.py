"""Which times of the output are believed, as tables.

clock        since_ms, until_ms: a delivery at a time outside, before the run was created or after its drain had ended, happened at an
             unknown time
shown_twice  since_ms, until_ms: what the clock showed twice when it was set back; of two times there nobody knows which came first
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path

import duckdb

from . import files

_MARGIN_MS = 1000
_SPAN = {"since_ms": "BIGINT", "until_ms": "BIGINT"}
_ALWAYS = (-(1 << 62), 1 << 62)


def define(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Make both tables, from the run's journal and its drain."""
    entries = list(files.lines(folder / "journal.jsonl", "at", "event"))
    steps = [entry for entry in entries if entry["event"] == "clock_stepped"]
    drain = folder / "delivered" / "drain.json"
    stated = files.document(drain).get("ended_at") if drain.exists() else None
    begins = [entry["at"] for entry in entries if entry["event"] == "run_created"]
    ends = [entry["at"] for entry in entries if entry["event"] == "stage_finished" and entry["stage"] == "drain"]
    ends = [stated] if stated is not None else ends
    set_by = list(accumulate([0, *(step["step_ms"] for step in steps)]))
    margin = _MARGIN_MS + max(early - late for number, early in enumerate(set_by) for late in set_by[number:])
    since = min(map(files.milliseconds, begins)) - margin if begins else _ALWAYS[0]
    until = max(map(files.milliseconds, ends)) + margin if ends else _ALWAYS[1]
    files.table(connection, "clock", _SPAN, [[since, until]])
    spans = [[files.milliseconds(step["since"]), files.milliseconds(step["until"])] for step in steps if step["step_ms"] < 0]
    files.table(connection, "shown_twice", _SPAN, _joined(sorted(spans)))


def _joined(spans: list[list[int]]) -> list[list[int]]:
    """Spans that touch, as one. They are in order."""
    latest = list(accumulate((until for _, until in spans), max))
    begins = [spans[number + 1][0] for number, (one, _) in enumerate(pairwise(latest)) if spans[number + 1][0] > one]
    begins = [*(span[0] for span in spans[:1]), *begins]
    return [[begin, max(until for since, until in spans if begin <= since < end)] for begin, end in pairwise([*begins, _ALWAYS[1]])]
