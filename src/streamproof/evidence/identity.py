"""How a record carries its identity through a pipeline.

A record's value is a JSON object that *starts* with a fixed-width ``id`` and the payload it speaks of::

    {"id":"0003-00000000a1b2-0000013f-89abcdef","payload":{...},"whatever":"the pipeline adds"}
           |    |            |        |
           |    |            |        crc32 of the payload's bytes (hex)
           |    |            length of the payload in bytes (hex)
           |    sequence: counts the producer's records from 0 (hex)
           producer (hex)

Fixed widths keep decoding free of JSON parsing, and because the payload's length is carried, a pipeline may append fields after it
without touching the identity. A value that does not start like this has no identity: it is CORRUPTED, not skipped.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

_PREFIX = re.compile(rb'\{"id":"([0-9a-f]{4})-([0-9a-f]{12})-([0-9a-f]{8})-([0-9a-f]{8})","payload":')
PREFIX_LENGTH = len('{"id":"0003-00000000a1b2-0000013f-89abcdef","payload":')
MAX_PRODUCER = 0xFFFF
MAX_SEQUENCE = 0xFFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a record is. ``crc`` is recomputed from the payload that was read; ``carried_crc`` is what the record says of itself."""

    producer: int
    sequence: int
    crc: int
    carried_crc: int

    @property
    def intact(self) -> bool:
        return self.crc == self.carried_crc


def encode(producer: int, sequence: int, payload: bytes) -> bytes:
    """Return the value that carries ``payload`` (a JSON document, UTF-8) under the identity (producer, sequence).

    Raises ValueError when producer or sequence do not fit their fixed width.
    """
    if not 0 <= producer <= MAX_PRODUCER or not 0 <= sequence <= MAX_SEQUENCE:
        raise ValueError(f"identity out of range: producer {producer} (0..{MAX_PRODUCER}), sequence {sequence} (0..{MAX_SEQUENCE})")
    head = b'{"id":"%04x-%012x-%08x-%08x","payload":' % (producer, sequence, len(payload), zlib.crc32(payload))
    return head + payload + b"}"


def decode(value: bytes | None) -> Identity | None:
    """Return the identity found in ``value``, or None when it has none (damaged, truncated, a tombstone, or not ours)."""
    if value is None:
        return None
    match = _PREFIX.match(value)
    if match is None:
        return None
    length = int(match[3], 16)
    payload = value[PREFIX_LENGTH : PREFIX_LENGTH + length]
    if len(payload) != length:
        return None
    return Identity(int(match[1], 16), int(match[2], 16), zlib.crc32(payload), int(match[4], 16))
