"""The output as a second reader found it: raw keys and values, ``delivered_again/``, decoded here in SQL.

The drain of the product reads the output fast, with its own decoder of Kafka's protocol and of identities. A plain client reads the same
output again and writes down what it got. Where a run has that, the suites judge by it, and by nothing that the drain wrote:

    reread    partition, offset, ... of each record, with its identity, ``closed`` (what follows the payload ends the value) and ``digest``
              (the first 60 bits of the sha256 of key and payload)
    misread   the records on which the two readers differ: who, partition, offset, producer, sequence, start, batch, attempt

Of a large output the second reader read stretches, which ``ranges.json`` names: ``delivered`` is then what the drain wrote everywhere else,
and only within the stretches the two are compared. ``ends_differ`` has the partitions of which the two found different ends.

A run without ``delivered_again/`` was read once: ``delivered`` is then what the drain wrote, and there is no ``misread``.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import duckdb

from . import files, placed

_PAYLOADS = (
    """partition INTEGER, "offset" BIGINT, batch BIGINT, attempt INTEGER, start INTEGER, delivered_at TIMESTAMPTZ, key BLOB, value BLOB"""
)
_DIGIT = "(?:3[0-9]|6[1-6])"  # a hexadecimal digit, in hexadecimal digits
_PARTS = {"producer": 4, "sequence": 12, "length": 8, "carried": 8}
_HEAD, _TAIL = b'{"id":"'.hex().upper(), b'","payload":'.hex().upper()
_PATTERN = f"^{_HEAD}{'2D'.join(f'({_DIGIT}{{{count}}})' for count in _PARTS.values())}{_TAIL}"
_PREFIX = len(_HEAD) + 2 * (sum(_PARTS.values()) + len(_PARTS) - 1) + len(_TAIL)
_BLOCK = 10_000  # so many offsets of a partition are looked up together
# The tail as text. What strings say is not judged: bytes that are no UTF-8 become "?", and so do escapes of half a character.
_HALVES = r"regexp_replace({}, '((?:^|[^\\])(?:\\\\)*)(?:\\u[dD][89a-fA-F][0-9a-fA-F]{{2}})+', '\1?', 'g')"
_TEXT = _HALVES.format(
    r"""coalesce(
            TRY(decode(unhex(tail))),
            decode(unhex(replace(regexp_replace(regexp_replace(tail, '(..)', '\1 ', 'g'), '[89A-F]. ', '3F ', 'g'), ' ', '')))
        )"""
)
# DuckDB's reader of JSON takes NaN, Infinity and a comma before an end. None of them is JSON, outside of a string.
_LAX = r"""regexp_matches(regexp_replace({}, '"(?:[^"\\]|\\.)*"', '""', 'g'), '(?i)nan|inf|,\s*[\]}}]')"""
_COMPARED = 'partition, "offset", producer, sequence, start, batch, attempt, delivered_at'


def _number(part: str) -> str:
    return f"CAST('0x' || decode(unhex(id.{part})) AS BIGINT)"


_VIEWS = {
    "reread": f"""
        WITH parts AS (
            SELECT *, hex(value) AS digits, regexp_extract(hex(value), '{_PATTERN}', {list(_PARTS)}) AS id FROM delivered_again
        ), sized AS (
            SELECT *, CASE WHEN id.producer <> '' THEN {_number("length")} END AS length FROM parts
        ), whole AS (
            SELECT *, length IS NOT NULL AND len(digits) >= {_PREFIX} + 2 * length AS identified FROM sized
        ), tailed AS (
            SELECT *, substr(digits, {_PREFIX + 1} + 2 * length) AS tail FROM whole
        ), ended AS (
            SELECT *, '{{"":""' || {_TEXT} AS rest FROM tailed
        )
        SELECT partition, "offset", start, batch, attempt, delivered_at,
               CASE WHEN identified THEN CAST({_number("producer")} AS INTEGER) END AS producer,
               CASE WHEN identified THEN {_number("sequence")} END AS sequence,
               CASE WHEN NOT identified OR NOT coalesce(json_valid(rest), false) OR {_LAX.format("rest")} THEN false
                    ELSE NOT list_has_any(json_keys(rest), ['id', 'payload']) END AS closed,
               CASE WHEN identified THEN CAST('0x' || substr(sha256(
                   encode(coalesce(CAST(octet_length(key) AS VARCHAR), '-') || ':') || coalesce(key, ''::BLOB)
                   || unhex(substr(digits, {_PREFIX + 1}, 2 * length))), 1, 15) AS BIGINT) END AS digest
        FROM ended""",
}
_MISREAD = """
    SELECT 'only the drain' AS who, * FROM (SELECT {compared} FROM {drained} EXCEPT ALL SELECT {compared} FROM reread)
    UNION ALL
    SELECT 'only the second reader' AS who, * FROM (SELECT {compared} FROM reread EXCEPT ALL SELECT {compared} FROM {drained})"""
_WHOLE = {
    "delivered": """
        SELECT reread.*, drained.crc FROM reread LEFT JOIN drained
        ON reread.partition = drained.partition AND reread."offset" = drained."offset\"""",
    "misread": _MISREAD.format(compared=_COMPARED, drained="drained"),
}
_ONCE = "CAST(NULL AS BOOLEAN) AS closed, CAST(NULL AS BIGINT) AS digest"
_WITHIN = """
    ON drained.partition = blocks.partition AND drained."offset" // {size} = blocks.block
    AND drained."offset" >= blocks.since AND drained."offset" < blocks.until"""
_STRETCHES = {
    "blocks": f"""
        SELECT partition, since, until, unnest(range(since // {_BLOCK}, (until + {_BLOCK} - 1) // {_BLOCK})) AS block FROM stretches""",
    "drained_there": f"SELECT drained.* FROM drained SEMI JOIN blocks {_WITHIN.format(size=_BLOCK)}",
    "reread_there": """
        SELECT reread.*, drained_there.crc FROM reread LEFT JOIN drained_there
        ON reread.partition = drained_there.partition AND reread."offset" = drained_there."offset\"""",
    "delivered": f"""
        FROM reread_there
        UNION ALL BY NAME
        SELECT drained.*, {_ONCE} FROM drained ANTI JOIN blocks {_WITHIN.format(size=_BLOCK)}""",
    "misread": _MISREAD.format(compared=_COMPARED, drained="drained_there"),
}
_ENDS = {
    "ends_differ": """
        SELECT partition, drain_end, own_end FROM drain_ends FULL JOIN own_ends USING (partition)
        WHERE drain_end IS DISTINCT FROM own_end"""
}


def define(
    connection: duckdb.DuckDBPyConnection, folder: Path, columns: str, keep: Collection[str] = (), location: dict[str, Any] | None = None
) -> None:
    """Define ``drained`` (what the drain wrote) and ``delivered``: by the second reading, as far as it goes. ``location`` is where a record
    keeps its identity, None where its value begins with it."""
    files.parquet(connection, "drained", folder / "delivered", columns, keep)
    if not any(folder.glob("delivered_again/*.parquet")):
        files.define(connection, {"delivered": f"SELECT *, {_ONCE} FROM drained"}, keep)
        return
    files.parquet(connection, "delivered_again", folder / "delivered_again", _PAYLOADS)
    files.define(connection, _VIEWS if location is None else _reread(location), {"reread", *keep})
    ranges = folder / "delivered_again" / "ranges.json"
    reading: dict[str, Any] = {"whole": True, "ends": {}, "ranges": []}
    if ranges.exists():
        reading = files.document(ranges, *reading)
    if reading["whole"]:
        files.define(connection, _WHOLE, {"delivered", *keep})
    else:
        rows = [[stretch["partition"], stretch["since"], stretch["until"]] for stretch in reading["ranges"]]
        files.table(connection, "stretches", {"partition": "INTEGER", "since": "BIGINT", "until": "BIGINT"}, rows)
        files.define(connection, _STRETCHES, {"blocks", "drained_there", "reread_there", *keep})
    _define_ends(connection, folder / "delivered" / "drain.json", reading["ends"])


def _reread(location: dict[str, Any]) -> dict[str, str]:
    if location["kind"] == "envelope":
        return _VIEWS
    return {"reread": placed.view(location, lambda data: _HALVES.format(f"TRY(decode(unhex({data})))"), _LAX.format)}


def _define_ends(connection: duckdb.DuckDBPyConnection, drain: Path, own: dict[str, int]) -> None:
    """Both ends of each partition, where the drain names one and says that it read up to it."""
    drained: dict[str, Any] = files.document(drain, "complete") if drain.exists() else {"complete": False}
    ends = drained.get("end_offsets") if drained["complete"] and own else None
    for whose, known in (("drain", ends or {}), ("own", own if ends else {})):
        files.table(connection, f"{whose}_ends", {"partition": "INTEGER", f"{whose}_end": "BIGINT"}, [list(end) for end in known.items()])
    files.define(connection, _ENDS)
