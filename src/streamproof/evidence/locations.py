"""Where a job keeps the identity of a record, when it does not keep the value that streamproof sends (``streamproof.evidence.identity``).

An identity in a location of its own is a text with the form of a UUID, so that a column of that type takes it too::

    00000003-0000-4000-8000-00000000a1b2
        |                       |
        producer (hex)          sequence (hex)

Spread over two columns or fields, the first holds the producer and the second the sequence, as whole numbers.

``decode`` is what drains use. The second judge finds the identities with code of its own, in SQL.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from streamproof.evidence import identity
from streamproof.evidence.identity import MAX_PRODUCER, MAX_SEQUENCE

_FORM = re.compile(r"0000([0-9a-f]{4})-0000-4000-8000-([0-9a-f]{12})", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)
Found = tuple[int, int] | None
"""Producer and sequence; None where there is no identity."""


class Kind(StrEnum):
    """ENVELOPE: the value begins with it. HEADER: a header of a Kafka record. KEY: its key. JSON: a field of its value. COLUMNS: one or two
    columns of a row."""

    ENVELOPE = "envelope"
    HEADER = "header"
    KEY = "key"
    JSON = "json"
    COLUMNS = "columns"


@dataclass(frozen=True)
class Location:
    """``names`` is the header, the JSON pointer, or the columns. ``whole`` says whether the job delivers key and value as it reads them, so
    that they are judged too."""

    kind: Kind = Kind.ENVELOPE
    names: tuple[str, ...] = ()
    whole: bool = True

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """The location that ``to_dict`` wrote down; an empty one is the envelope."""
        return cls(Kind(stored["kind"]), tuple(stored["names"]), bool(stored["whole"])) if stored else cls()

    @property
    def header(self) -> str | None:
        return self.names[0] if self.kind is Kind.HEADER else None


ENVELOPE = Location()


def text(producer: int, sequence: int) -> str:
    """Raises ValueError when one of them does not fit."""
    if not 0 <= producer <= MAX_PRODUCER or not 0 <= sequence <= MAX_SEQUENCE:
        raise ValueError(f"identity out of range: producer {producer} (0..{MAX_PRODUCER}), sequence {sequence} (0..{MAX_SEQUENCE})")
    return f"0000{producer:04x}-0000-4000-8000-{sequence:012x}"


def of_text(found: str | bytes | None) -> Found:
    if isinstance(found, bytes):
        found = found.decode("latin-1")
    match = _FORM.fullmatch(found) if found is not None else None
    return (int(match[1], 16), int(match[2], 16)) if match is not None else None


def of_columns(found: tuple[Any, ...]) -> Found:
    """The identity in the columns of a row: a text, or two numbers."""
    if len(found) == 1:
        return of_text(str(found[0]))
    if not all(_NUMBER.fullmatch(str(one)) for one in found):
        return None
    producer, sequence = map(int, found)
    return (producer, sequence) if producer <= MAX_PRODUCER and sequence <= MAX_SEQUENCE else None


def decode(location: Location, key: bytes | None, value: bytes | None, header: bytes | None) -> Found:
    """The identity of a record of Kafka; ``header`` is the value of the header that the location names."""
    match location.kind:
        case Kind.ENVELOPE:
            found = identity.decode(value, key)
            return (found.producer, found.sequence) if found is not None else None
        case Kind.HEADER:
            return of_text(header)
        case Kind.KEY:
            return of_text(key)
        case Kind.JSON:
            field = _field(_document(value), location.names[0])
            return of_text(field) if isinstance(field, str) else None
        case Kind.COLUMNS:
            document = _document(value)
            return of_columns(tuple(_field(document, f"/{name}") for name in location.names))


def _document(value: bytes | None) -> Any:
    """What a value says as JSON; None when it is none. Of two fields with one name the first counts."""
    try:
        return json.loads((value or b"").decode(), object_pairs_hook=_first, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _field(document: Any, pointer: str) -> Any:
    """What lies at a JSON pointer; None when nothing does."""
    for name in pointer[1:].split("/"):
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
