"""Record batches are decoded as their makers meant them: kafka-python builds them, numpy reads them, whatever the records hold."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from kafka.record.default_records import DefaultRecordBatchBuilder

from streamproof.evidence import envelopes, identities, identity
from streamproof.evidence.folder import EvidenceError
from streamproof.sinks import origin, origins
from streamproof.sinks.kafka.record_batches import committed, decode

HEADER = origin.HEADER
GZIP, SNAPPY = 1, 2
PRODUCER = 4711


@dataclass(frozen=True)
class Record:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = 1_000


def batch(*records: Record, base: int = 0, codec: int = 0, transactional: bool = False, producer: int = PRODUCER) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, transactional, producer, 0, 0, 1 << 30)
    for number, record in enumerate(records):
        builder.append(number, record.timestamp, record.key, record.value, list(record.headers))
    built = bytearray(builder.build())
    built[:8] = base.to_bytes(8)
    return bytes(built)


def marker(base: int, *, abort: bool, producer: int = PRODUCER) -> bytes:
    """A control batch: a record whose key has a version and the type, 0 for an abort."""
    built = bytearray(
        batch(Record(b"\0\0\0\0\0\0", b"\0\0" + (b"\0\0" if abort else b"\0\1")), base=base, transactional=True, producer=producer)
    )
    built[22] |= 0x20
    return bytes(built)


def read(*batches: bytes, aborted: tuple[tuple[int, int], ...] = ()) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Offset, timestamp, value and the header of each record that is committed."""
    whole = b"".join(batches)
    found, _ = committed(memoryview(whole), aborted)
    data = np.frombuffer(whole, np.uint8)
    records = decode(data, found, HEADER.encode())

    def piece(at: int, size: int) -> bytes | None:
        return bytes(records.data[at : at + size]) if size >= 0 else None

    return [
        (offset, timestamp, piece(value, value_size), piece(header, header_size))
        for offset, timestamp, value, value_size, header, header_size in zip(
            *(
                column.tolist()
                for column in (
                    records.offset,
                    records.timestamp_ms,
                    records.value,
                    records.value_size,
                    records.header,
                    records.header_size,
                )
            ),
            strict=True,
        )
    ]


def ours(sequence: int, more: bytes = b"", producer: int = 0) -> bytes:
    return identity.encode(producer, sequence, b'{"n":%d%s}' % (sequence, more))


@pytest.mark.parametrize("codec", [0, GZIP])
def test_records_of_ours_come_out_with_their_headers_in_many_batches(codec: int) -> None:
    origin = ((HEADER, b"1.22.3"),)
    made = [[Record(ours(at * 500 + n), b"k%d" % n, origin, 1_000 + n) for n in range(500)] for at in range(3)]
    batches = [batch(*records, base=at * 501, codec=codec) for at, records in enumerate(made)]
    assert read(*batches) == [
        (at * 501 + n, 1_000 + n, record.value, b"1.22.3") for at, records in enumerate(made) for n, record in enumerate(records)
    ]


values = some.one_of(
    some.none(),
    some.binary(max_size=300),
    some.builds(lambda n, rest: identity.encode(0, n, rest), some.integers(0, 1 << 40), some.binary(max_size=300)),
    some.builds(lambda n: b"x" * (n % 60) + b'{"id":"' + b"y" * n, some.integers(0, 400)),
    some.builds(lambda n: ours(n) + ours(n + 1), some.integers(0, 9)),
)
headers = some.lists(
    some.tuples(some.sampled_from([HEADER, "other", "", "streamprooF"]), some.one_of(some.none(), some.binary(max_size=40))), max_size=3
)
records = some.builds(Record, values, some.one_of(some.none(), some.binary(max_size=40)), headers.map(tuple), some.integers(0, 1 << 41))


@given(some.lists(some.tuples(some.lists(records, min_size=1, max_size=8), some.sampled_from([0, GZIP])), min_size=1, max_size=5))
def test_whatever_records_hold_is_read_as_it_was_written(made: list[tuple[list[Record], int]]) -> None:
    batches, expected, base = [], [], 7
    for content, codec in made:
        batches.append(batch(*content, base=base, codec=codec))
        for number, record in enumerate(content):
            said = next((value for name, value in record.headers if name == HEADER and value is not None), None)
            expected.append((base + number, record.timestamp, record.value, said))
        base += len(content) + 1
    assert read(*batches) == expected


def test_aborted_records_and_markers_are_left_out() -> None:
    def value(offset: int) -> Record:
        return Record(ours(offset))

    log = [
        batch(value(0), value(1), base=0, transactional=True),
        batch(value(2), base=2, transactional=True, producer=2),
        marker(3, abort=True),
        batch(value(4), base=4, transactional=True),
        batch(value(5), base=5),
        marker(6, abort=False, producer=2),
        marker(7, abort=False),
    ]
    assert [offset for offset, *_ in read(*log, aborted=((PRODUCER, 0),))] == [2, 4, 5], "a later transaction of the same producer counts"
    assert [offset for offset, *_ in read(*log, aborted=((2, 2), (PRODUCER, 4)))] == [0, 1, 5]
    assert committed(memoryview(b"".join(log)), ())[1] == 8, "the marker is read, and not given"


def test_a_batch_that_the_answer_cuts_off_is_left_for_the_next() -> None:
    whole, cut = batch(Record(ours(0))), batch(Record(ours(1)), base=1)[:-1]
    found, behind = committed(memoryview(whole + cut), ())
    assert ([one.offset for one in found], behind) == ([0], 1)
    assert committed(memoryview(whole[:20]), ()) == ([], None)


def test_the_brokers_time_counts_where_it_says_so() -> None:
    built = bytearray(batch(Record(ours(0), timestamp=5), Record(ours(1), timestamp=9)))
    built[22] |= 0x08
    assert [timestamp for _, timestamp, *_ in read(bytes(built))] == [9, 9]


def test_a_damaged_batch_is_refused() -> None:
    built = bytearray(batch(Record(b"a"), Record(b"b")))
    built[61] += 2
    with pytest.raises(EvidenceError, match="a record batch is damaged"):
        read(bytes(built))
    built[16] = 1
    with pytest.raises(EvidenceError, match="message format 1"):
        read(bytes(built))


def test_a_batch_that_says_that_it_has_records_and_has_no_bytes_is_refused() -> None:
    built = batch(Record(b"a"))[:61]
    with pytest.raises(EvidenceError, match="1 records from offset 0 on do not fill its 0 bytes"):
        read(built[:8] + (61 - 12).to_bytes(4) + built[12:])


@given(
    some.lists(records, min_size=1, max_size=6),
    some.lists(some.tuples(some.floats(0, 0.999), some.integers(0, 255)), min_size=1, max_size=4),
)
def test_however_a_batch_is_damaged_nothing_outside_of_it_is_read(made: list[Record], damage: list[tuple[float, int]]) -> None:
    built = bytearray(batch(*made))
    for where, byte in damage:
        built[57 + int(where * (len(built) - 57))] = byte  # from the number of its records on
    found, _ = committed(memoryview(built), ())
    try:
        records = decode(np.frombuffer(bytes(built), np.uint8), found, HEADER.encode())
    except EvidenceError:
        return
    for at, size in ((records.value, records.value_size), (records.header, records.header_size)):
        assert ((at >= 0) & (at + np.maximum(size, 0) <= len(built))).all()


def _laid(found: list[bytes | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One after the other in a buffer: that, and where each begins, and its size."""
    size = np.array([-1 if text is None else len(text) for text in found], np.int64)
    return np.frombuffer(b"".join(text or b"" for text in found), np.uint8), np.cumsum(np.maximum(size, 0)) - np.maximum(size, 0), size


said = some.one_of(
    some.none(), some.from_regex(rb"[0-9]{0,10}\.[0-9]{0,19}\.[0-9]{0,10}", fullmatch=True), some.binary(max_size=12), some.just(b"1.2.3.4")
)


@given(some.lists(some.one_of(said, some.builds(lambda *of: b"%d.%d.%d" % of, *[some.integers(0, 10**9 - 1)] * 3)), max_size=30))
def test_origins_are_those_that_are_read_one_by_one(found: list[bytes | None]) -> None:
    many = zip(*(column.tolist() for column in origins.decode(*_laid(found))), strict=True)
    ones = [origin.decode([(HEADER, value)]) for value in found]
    assert list(many) == [tuple(-1 if part is None else part for part in one) for one in ones]


# --- identities and checksums of many --------------------------------------------------------------------------------------------------


@given(some.lists(values, max_size=20), some.randoms(use_true_random=False))
def test_identities_are_those_that_are_decoded_one_by_one(found: list[bytes | None], rng: Any) -> None:
    damaged = [bytearray(value) if value is not None else None for value in found]
    for value in damaged:
        if value and rng.random() < 0.5:
            value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
        if value and rng.random() < 0.2:
            del value[rng.randrange(len(value)) :]
    laid = [bytes(value) if value is not None else None for value in damaged]
    keys = [rng.choice([None, b"", b"k1", b"k2"]) for _ in laid]
    data, at, size = _laid([*laid, *keys])
    many = identities.decode(data, at[: len(laid)], size[: len(laid)], at[len(laid) :], size[len(laid) :])
    for row, value in enumerate(damaged):
        one = identity.decode(bytes(value) if value is not None else None, keys[row])
        assert bool(many.present[row]) == (one is not None)
        if one is not None:
            assert (one.producer, one.sequence, one.crc, one.carried_crc) == tuple(
                int(column[row]) for column in (many.producer, many.sequence, many.crc, many.carried_crc)
            )
            assert bool(many.intact[row]) == one.intact


def test_each_byte_is_a_digit_of_an_identity_or_is_none() -> None:
    whole = identity.encode(0x3A9F, 0xFEDCBA987654, b"{}")
    made = [whole[:place] + bytes([byte]) + whole[place + 1 :] for place in range(identity.PREFIX_LENGTH) for byte in range(256)]
    data = np.frombuffer(b"".join(made), np.uint8)
    at = np.arange(len(made)) * len(whole)
    many = identities.decode(data, at, np.full(len(made), len(whole)), at, np.full(len(made), -1))
    ones = [identity.decode(value) for value in made]
    assert many.present.tolist() == [one is not None for one in ones]
    rows = np.flatnonzero(many.present).tolist()
    assert [(int(many.producer[row]), int(many.sequence[row]), int(many.carried_crc[row])) for row in rows] == [
        (one.producer, one.sequence, one.carried_crc) for one in ones if one is not None
    ]


@given(some.lists(some.binary(max_size=200), max_size=12), some.integers(0, 1 << 30))
def test_checksums_are_zlibs(found: list[bytes], seed: int) -> None:
    found = [*found, np.random.default_rng(seed).bytes(seed % 9_000)]
    assert identities.crc32s(*_laid(list(found))).tolist() == [zlib.crc32(text) for text in found]


TAILS = (
    b"}",
    b',"source":{"partition":1,"offset":17}}',
    b',"source":{"partition":2,"offset":90}}',
    b',"source":{"partition":2,"offset":09}}',
    b' ,\n"a" : [1, -2.5e+3, 0.1, {"b": null}, [], {}, true, false, "x\\u00e9\\n"]} ',
    b',"a":1,"a":2}',
    b',"i\\u0064":1}',
    b',"n\\u00e4me":1}',
    b',"payload":{}}',
    b',"deep":{"payload":1,"id":2}}',
    b',"id":1}',
    b',"n":NaN}',
    b"}}",
    b"",
    b'"}',
)


@given(some.lists(some.one_of(some.sampled_from(TAILS), some.binary(max_size=30)), max_size=30), some.randoms(use_true_random=False))
def test_tails_close_a_value_when_json_says_so(found: list[bytes], rng: Any) -> None:
    found = [bytes(_damaged(bytearray(tail), rng)) for tail in found]
    data, at, size = _laid(list(found))
    said = envelopes.closed(data, at, at + size).tolist()
    wrong = [(tail, one) for tail, one in zip(found, said, strict=True) if one != identity.closes(tail) and not LEADING_ZERO.search(tail)]
    assert wrong == []


LEADING_ZERO = re.compile(rb"\b0\d")
"""Only where a digit alone tells a good tail from a bad one may the quick comparison with the tail before be wrong."""


def _damaged(tail: bytearray, rng: Any) -> bytearray:
    if tail and rng.random() < 0.4:
        tail[rng.randrange(len(tail))] ^= 1 << rng.randrange(8)
    if tail and rng.random() < 0.2:
        del tail[rng.randrange(len(tail)) :]
    if tail and rng.random() < 0.2:
        tail[rng.randrange(len(tail)) : 0] = rng.choice([b"0", b"}", b'"', b",", b"1", b"x"])
    return tail


@pytest.mark.parametrize("depth", [10, 59, 60, 61, 200, 100_000])
def test_a_tail_may_be_deep(depth: int) -> None:
    for tail in (b',"a":' + b"[" * depth + b"]" * depth + b"}", b',"a":' + b"[" * depth + b"]" * (depth - 1) + b"}"):
        data, at, size = _laid([tail])
        assert envelopes.closed(data, at, at + size).tolist() == [identity.closes(tail)]
