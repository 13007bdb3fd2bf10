"""Damage to the bytes of a record: its value and its key as a sink keeps them. The product's decoders say what the drain would write."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamproof.evidence import identities, identity
from tests.mutation.damage import DAMAGES
from tests.mutation.evidence import Evidence

KEY = b"k7"
Spoil = Callable[[bytes, np.random.Generator], tuple[bytes, bytes | None]]


def _damages(name: str, spoil: Spoil) -> None:
    def damage(evidence: Evidence, rng: np.random.Generator) -> bool:
        once = evidence.once()
        if not len(once):
            return False
        record = int(rng.choice(once))
        payload = b'{"n":%d}' % rng.integers(0, 1000)
        sent = identity.encode(*evidence.id_of(record), payload, KEY)
        passed_on = sent[:-1] + rng.choice([b"}", b',"source":{"partition":1,"offset":17}}', b',"a":[1,{"b":"}"}]}'])
        value, key = spoil(bytes(passed_on), rng)
        if _drained(value, key) is None:
            evidence.set(evidence.delivered, "crc", evidence.rows_of([record]), -1)
        evidence.must("CORRUPTED", record)
        return True

    DAMAGES[name] = damage


def _drained(value: bytes, key: bytes | None) -> int | None:
    """The checksum that a drain writes. Both decoders must say the same."""
    data = np.frombuffer(value + (key or b""), np.uint8)
    many = identities.decode(data, *(np.array([number]) for number in (0, len(value), len(value), -1 if key is None else len(key))))
    one = identity.decode(value, key)
    assert one is not None, "the identity itself was not damaged"
    assert (int(many.crc[0]), bool(many.intact[0])) == (one.crc, one.intact), f"the decoders differ about {value!r}"
    return one.crc if one.intact else None


def _tail(value: bytes) -> int:
    """Where what follows the payload begins."""
    return identity.PREFIX_LENGTH + int(value[25:33], 16)


_damages("cut_the_tail_of_a_value", lambda value, rng: (value[: int(rng.integers(_tail(value), len(value)))], KEY))
_damages("garbage_behind_a_value", lambda value, rng: (value + (b"}", b"x", b"\0", b",", value)[int(rng.integers(0, 5))], KEY))
_damages("a_second_payload", lambda value, rng: (value[:-1] + bytes(rng.choice([b',"payload":{"n":1}}', b',"p\\u0061yload":0}'])), KEY))
_damages("a_second_identity", lambda value, rng: (value[:-1] + b',"id":"0000-000000000000-00000002-00000000"}', KEY))
_damages("another_key", lambda value, rng: (value, [b"k8", b"k", b"", None][int(rng.integers(0, 4))]))
