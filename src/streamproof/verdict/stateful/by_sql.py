"""Results that a query of the user's own computes again: the reference of a job that aggregates or joins, over what it was given.

The query reads the table ``input`` (:mod:`streamproof.evidence.inputs`): the records that were acknowledged, with the columns
``_producer``, ``_sequence``, ``_partition`` and ``_offset``. It gives a row for each result. Where it has a column ``due``, results
for which that is false may be delivered or not.

A delivered value is the same as a computed one when both are numbers that differ by less than a billionth, or when their texts are equal.
Results that depend on records whose send is INDETERMINATE (the query gives something else with them) are not judged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamproof.evidence import inputs
from streamproof.evidence.batches import Batch
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.histories import Sent
from streamproof.evidence.inputs import QueryError, quoted
from streamproof.evidence.payloads import Payloads
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.checks.matching import Finding
from streamproof.verdict.stateful.reference import Judged

CLOSE = 1e-9
NO_RESULT = "something that is no result"
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?", re.ASCII)
Key = tuple[str | None, ...]
Row = tuple[str | None, ...]


@dataclass(frozen=True)
class BySql:
    """What a job's results are about (``key``), what they say (``values``), and the query that computes them."""

    key: tuple[str, ...]
    values: tuple[str, ...]
    sql: str
    final: bool = False


@dataclass(frozen=True)
class Due:
    """A result as the query gives it. ``certain`` says that it must be delivered."""

    values: Row
    certain: bool


def computed(spec: BySql, records: pa.Table, columns: dict[str, Any]) -> dict[Key, Due]:
    """What the query gives over these records. Raises QueryError when it cannot be evaluated, lacks a column, or gives a key twice."""
    with inputs.database(records, columns) as connection:
        given = inputs.rows(connection, f"SELECT column_name FROM (DESCRIBE ({spec.sql}))", "reference")
        names = [name for (name,) in given]
        if missing := [name for name in (*spec.key, *spec.values) if name not in names]:
            raise QueryError(f"reference: expected a column {missing[0]}, it has: {', '.join(names)}")
        wanted = [f"CAST({name} AS VARCHAR)" for name in quoted([*spec.key, *spec.values])]
        certain = "coalesce(CAST(due AS BOOLEAN), false)" if "due" in names else "true"
        rows = inputs.rows(connection, f"SELECT {', '.join(wanted)}, {certain} FROM ({spec.sql})", "reference")
    due: dict[Key, Due] = {}
    for row in rows:
        key, values = tuple(row[: len(spec.key)]), tuple(row[len(spec.key) : -1])
        if key in due:
            raise QueryError(f"reference: it gives two rows for {name_of(spec, key)}; a result has one")
        due[key] = Due(values, bool(row[-1]))
    return due


def judge(folder: RunFolder, spec: BySql, sent: Sent, payloads: Payloads, batches: Sequence[Batch]) -> Judged:
    """Compare what was delivered with what the query computes again. Raises EvidenceError when the evidence cannot be read."""
    due, doubtful = _due(folder, spec, sent)
    copies: dict[Key, list[tuple[int, Row]]] = {}
    unreadable = []
    for row, value in enumerate(payloads.values):
        found = _parsed(spec, value)
        if found is None:
            unreadable.append(row)
        elif found[0] not in doubtful:
            copies.setdefault(found[0], []).append((row, found[1]))
    findings = [*_findings(spec, due, copies, payloads), *(_strange(row) for row in unreadable)]
    figures = {"due": sum(one.certain for one in due.values()), "delivered": len(payloads.values), "late_records": 0, "late_rows": (0, 0)}
    return Judged(tuple(findings), {**figures, "dropped_rows": 0, "batches": len(batches), "batches_unreported": 0})


def _due(folder: RunFolder, spec: BySql, sent: Sent) -> tuple[dict[Key, Due], set[Key]]:
    """What is due, and the keys of which that is not known."""
    records = inputs.read(folder)
    try:
        due = computed(spec, *_given(records, sent, sent.acked))
        if not (unknown := ~sent.acked & ~sent.rejected).any():
            return due, set()
        other = computed(spec, *_given(records, sent, sent.acked | unknown))
    except QueryError as error:
        raise EvidenceError(f"{folder.reference}: {error}") from error
    doubtful = {key for key in due.keys() | other.keys() if due.get(key) != other.get(key)}
    return {key: one for key, one in due.items() if key not in doubtful}, doubtful


def _given(records: pa.Table, sent: Sent, chosen: np.ndarray) -> tuple[pa.Table, dict[str, Any]]:
    rows = np.flatnonzero(chosen)
    if len(rows) and int(sent.sequence[rows].max()) >= len(records):
        raise EvidenceError(f"inputs.parquet says nothing of record {int(sent.sequence[rows].max())}: it has {len(records)} rows")
    columns = {f"_{name}": getattr(sent, name)[rows] for name in ("producer", "sequence", "partition", "offset")}
    return records.take(pa.array(sent.sequence[rows])), columns


def _parsed(spec: BySql, value: bytes | None) -> tuple[Key, Row] | None:
    """Key and values of a delivered result; None when it is none."""
    try:
        document = json.loads(value or b"", parse_float=str, parse_int=str)  # as they are written
        fields = [_text(document[name]) for name in (*spec.key, *spec.values)]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return tuple(fields[: len(spec.key)]), tuple(fields[len(spec.key) :])


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return "true" if value is True else "false" if value is False else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _same(one: str | None, other: str | None) -> bool:
    if one is None or other is None or not (_NUMBER.fullmatch(one) and _NUMBER.fullmatch(other)):
        return one == other
    first, second = float(one), float(other)
    return abs(first - second) <= CLOSE * max(1.0, abs(first), abs(second))


def _findings(spec: BySql, due: dict[Key, Due], copies: dict[Key, list[tuple[int, Row]]], payloads: Payloads) -> Iterator[Finding]:
    for key, one in due.items():
        if one.certain and key not in copies:
            yield _finding(spec, Anomaly.MISSING, key, [], _said(spec, one.values))
    for key, found in copies.items():
        rows = [row for row, _ in found]
        if key not in due:
            yield _finding(spec, Anomaly.UNEXPECTED, key, rows, _said(spec, found[-1][1]))
            continue
        judged = [_last(found, payloads)] if spec.final else found
        wrong = [(row, values) for row, values in judged if not all(map(_same, values, due[key].values))]
        if wrong:
            detail = f"{_said(spec, wrong[0][1])} instead of {_said(spec, due[key].values)}"
            yield _finding(spec, Anomaly.WRONG_VALUE, key, [row for row, _ in wrong], detail)
        if len(rows) > 1 and not spec.final:
            yield _finding(spec, Anomaly.REPEATED, key, rows, _said(spec, found[-1][1]))


def _last(found: list[tuple[int, Row]], payloads: Payloads) -> tuple[int, Row]:
    """The last of these copies: by offset where one partition holds them all, else by time."""
    of = payloads.delivered
    together = len({int(of.partition[row]) for row, _ in found}) == 1

    def place(copy: tuple[int, Row]) -> tuple[int, int, int]:
        row, _ = copy
        return 0 if together else int(payloads.delivered_at[row]), int(of.partition[row]), int(of.offset[row])

    return max(found, key=place)


def _finding(spec: BySql, anomaly: Anomaly, key: Key, rows: Sequence[int], detail: str) -> Finding:
    return Finding(anomaly, None, None, len(rows), None, tuple(rows), result=name_of(spec, key), detail=detail)


def _strange(row: int) -> Finding:
    return Finding(Anomaly.UNEXPECTED, None, None, 1, None, (row,), result=NO_RESULT, detail="it cannot be read")


def name_of(spec: BySql, key: Iterable[str | None]) -> str:
    """A result in words."""
    return "the result of " + ", ".join(f"{name} {_shown(value)}" for name, value in zip(spec.key, key, strict=True))


def _said(spec: BySql, values: Row) -> str:
    return ", ".join(f"{name} {_shown(value)}" for name, value in zip(spec.values, values, strict=True))


def _shown(value: str | None) -> str:
    return "null" if value is None else value
