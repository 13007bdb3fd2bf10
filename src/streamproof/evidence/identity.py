"""How a record carries its identity through a pipeline.

A record's value is a JSON object that *starts* with a fixed-width ``id`` and the payload it speaks of::

    {"id":"0003-00000000a1b2-0000013f-89abcdef","payload":{...},"whatever":"the pipeline adds"}
           |    |            |        |
           |    |            |        crc32 of the key's bytes and the payload's (hex)
           |    |            length of the payload in bytes (hex)
           |    sequence: counts the producer's records from 0 (hex)
           producer (hex)

Fixed widths keep decoding free of JSON parsing, and because the payload's length is carried, a pipeline may append fields after it
without touching the identity. A value that does not start like this has no identity: it is CORRUPTED, not skipped.

All of a record is covered. The checksum is of key and payload, so a record that leaves under another key is damaged. What follows the
payload must end the value as JSON, with other fields than ``id`` and ``payload``: a value that was cut off, or has garbage behind it, is
damaged too. What the fields that a pipeline appends *say* is its own affair.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass

_PREFIX = re.compile(rb'\{"id":"([0-9a-f]{4})-([0-9a-f]{12})-([0-9a-f]{8})-([0-9a-f]{8})","payload":')
PREFIX_LENGTH = len('{"id":"0003-00000000a1b2-0000013f-89abcdef","payload":')
KEYED = 1
"""From where the checksum of a key begins, so that an empty key differs from none."""
MAX_PRODUCER = 0xFFFF
MAX_SEQUENCE = 0xFFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a record is. ``crc`` is recomputed from key and payload as they were read; ``carried_crc`` is what the record says of itself.
    ``closed`` says whether what follows the payload ends the value."""

    producer: int
    sequence: int
    crc: int
    carried_crc: int
    closed: bool

    @property
    def intact(self) -> bool:
        return self.closed and self.crc == self.carried_crc


def checksum(key: bytes | None, payload: bytes) -> int:
    """The crc32 of key and payload. An empty key is a key."""
    return zlib.crc32(payload) if key is None else zlib.crc32(payload, zlib.crc32(key, KEYED))


def closes(tail: bytes) -> bool:
    """Whether what follows the payload ends the value: fields other than ``id`` and ``payload``, if any, and the end of the object."""
    try:
        fields = json.loads(
            '{"":""' + tail.decode("latin-1"), object_pairs_hook=list, parse_int=str, parse_float=str, parse_constant=_refuse
        )
    except (ValueError, RecursionError):
        return False
    return not {"id", "payload"} & {name for name, _ in fields}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def encode(producer: int, sequence: int, payload: bytes, key: bytes | None = None) -> bytes:
    """Return the value that carries ``payload`` (a JSON document, UTF-8) under the identity (producer, sequence) in a record with ``key``.

    Raises ValueError when producer or sequence do not fit their fixed width.
    """
    if not 0 <= producer <= MAX_PRODUCER or not 0 <= sequence <= MAX_SEQUENCE:
        raise ValueError(f"identity out of range: producer {producer} (0..{MAX_PRODUCER}), sequence {sequence} (0..{MAX_SEQUENCE})")
    head = b'{"id":"%04x-%012x-%08x-%08x","payload":' % (producer, sequence, len(payload), checksum(key, payload))
    return head + payload + b"}"


def decode(value: bytes | None, key: bytes | None = None) -> Identity | None:
    """Return the identity of the record with ``value`` and ``key``, or None when it has none (damaged, cut off, a tombstone, another's)."""
    if value is None:
        return None
    match = _PREFIX.match(value)
    if match is None:
        return None
    length = int(match[3], 16)
    payload = value[PREFIX_LENGTH : PREFIX_LENGTH + length]
    if len(payload) != length:
        return None
    tail = value[PREFIX_LENGTH + length :]
    return Identity(int(match[1], 16), int(match[2], 16), checksum(key, payload), int(match[4], 16), closes(tail))
