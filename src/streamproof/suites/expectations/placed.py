"""Identities that lie in a location of their own, found in SQL: in a header, in the key, at a JSON pointer, or in one or two columns.

An identity is a text with the form of a UUID, ``00000003-0000-4000-8000-00000000a1b2``: the producer's four digits, and the twelve of the
sequence, hexadecimal. In two columns it is two whole numbers. A row of a table or a file comes as a JSON object with its columns.

What a job does not deliver as it read it is not judged: ``digest`` is 0 then, as in ``sent/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

_FORM = "^0000([0-9a-f]{4})-0000-4000-8000-([0-9a-f]{12})$"
_WHOLE_NUMBER = "^[0-9]{1,15}$"
_MOST = "producer <= 65535 AND sequence <= 281474976710655"


def view(location: Mapping[str, Any], text: Callable[[str], str], lax: Callable[[str], str]) -> str:
    """The query of ``reread``. ``text(bytes)`` is bytes as text that JSON can be read from, ``lax(text)`` whether a text holds what only
    DuckDB takes for JSON."""
    kind, names = str(location["kind"]), [str(name) for name in location["names"]]
    json = f"CASE WHEN NOT {lax('document')} AND coalesce(json_valid(document), false) THEN CAST(document AS JSON) END"
    document = f"SELECT *, {json} AS fields FROM (SELECT *, {text('hex(value)')} AS document FROM delivered_again)"
    if len(names) == 2:
        found = f"SELECT *, {_number(names[0])} AS producer, {_number(names[1])} AS sequence FROM ({document})"
    else:
        source, stated = _stated(kind, names, document)
        parts = (
            f"SELECT *, regexp_extract(stated, '{_FORM}', ['producer', 'sequence']) AS id FROM (SELECT *, {stated} AS stated FROM {source})"
        )
        found = f"SELECT * EXCLUDE (id), {_hexadecimal('producer')} AS producer, {_hexadecimal('sequence')} AS sequence FROM ({parts})"
    return f"""
        WITH found AS ({found}), known AS (SELECT *, coalesce({_MOST}, false) AS identified FROM found)
        SELECT partition, "offset", start, batch, attempt, delivered_at,
               CASE WHEN identified THEN CAST(producer AS INTEGER) END AS producer,
               CASE WHEN identified THEN sequence END AS sequence,
               identified AS closed,
               CASE WHEN identified THEN {_digest(bool(location["whole"]))} END AS digest
        FROM known"""


def _stated(kind: str, names: Sequence[str], document: str) -> tuple[str, str]:
    """Where the text of the identity is read from, and the text."""
    if kind in ("header", "key"):
        return "delivered_again", f"TRY(decode({kind}))"
    pointer = names[0] if kind == "json" else f"/{names[0]}"
    return f"({document})", f"CASE WHEN json_type(fields, '{pointer}') = 'VARCHAR' THEN fields ->> '{pointer}' END"


def _number(column: str) -> str:
    stated = f"(fields ->> '/{column}')"
    return f"CASE WHEN regexp_matches({stated}, '{_WHOLE_NUMBER}') THEN CAST({stated} AS BIGINT) END"


def _hexadecimal(part: str) -> str:
    return f"CASE WHEN id.{part} <> '' THEN CAST('0x' || id.{part} AS BIGINT) END"


def _digest(whole: bool) -> str:
    if not whole:
        return "CAST(0 AS BIGINT)"
    key = "encode(coalesce(CAST(octet_length(key) AS VARCHAR), '-') || ':') || coalesce(key, ''::BLOB)"
    return f"CAST('0x' || substr(sha256({key} || coalesce(value, ''::BLOB)), 1, 15) AS BIGINT)"
