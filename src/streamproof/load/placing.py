"""A record as it is sent: its key, its value and its headers, with the identity in the location where the job reads it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from streamproof.evidence import identity, locations
from streamproof.evidence.locations import Kind, Location
from streamproof.load.recorded import Headers


@dataclass(frozen=True)
class Placed:
    """``crc`` and ``sha256`` are of what the job has to deliver as it is beside the identity; 0 where that is nothing."""

    key: bytes | None
    value: bytes
    headers: list[tuple[str, str | bytes | None]]
    crc: int
    sha256: int


def placed(
    location: Location, whole: bool, producer: int, sequence: int, key: bytes | None, payload: bytes, headers: Headers = ()
) -> Placed:
    """The record that carries ``payload``, a JSON object where the identity is a part of it, beside other ``headers``. ``whole`` says
    whether the job delivers key and value as they are."""
    if location.kind is Kind.ENVELOPE:
        value = identity.encode(producer, sequence, payload, key)
        crc, digest = (identity.checksum(key, payload), sha256(key, payload)) if whole else (0, 0)
        return Placed(key, value, list(headers), crc, digest)
    name = locations.text(producer, sequence)
    key = name.encode() if location.kind is Kind.KEY else key
    others: list[tuple[str, str | bytes | None]] = [header for header in headers if header[0] != location.header]
    own = [(location.header, name.encode())] if location.header is not None else []
    value = _with_fields(payload, location, producer, sequence)
    crc, digest = (identity.checksum(key, value), sha256(key, value)) if whole else (0, 0)
    return Placed(key, value, [*own, *others], crc, digest)


def _with_fields(payload: bytes, location: Location, producer: int, sequence: int) -> bytes:
    """The payload with the fields of the identity before its own."""
    if location.kind not in (Kind.JSON, Kind.COLUMNS):
        return payload
    text = locations.text(producer, sequence)
    pointers = [name.strip("/").split("/") for name in location.names]
    fields: list[str | int] = [text] if len(pointers) == 1 else [producer, sequence]
    document: dict[str, Any] = {pointer[0]: {} for pointer in pointers} | json.loads(payload)
    for pointer, field in zip(pointers, fields, strict=True):
        _set(document, pointer, field)
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _set(document: dict[str, Any], pointer: list[str], field: str | int) -> None:
    *path, last = pointer
    for name in path:
        if not isinstance(document.get(name), dict):
            document[name] = {}
        document = document[name]
    document[last] = field


def sha256(key: bytes | None, payload: bytes) -> int:
    """The first 60 bits of the sha256 of key and payload, by which the second judge compares them. An empty key is a key."""
    keyed = b"-:" if key is None else b"%d:" % len(key) + key
    return int(hashlib.sha256(keyed + payload).hexdigest()[:15], 16)
