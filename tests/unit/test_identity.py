"""What a record says of itself survives the way through a pipeline, and nothing that damages it goes unnoticed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamproof.evidence.identity import MAX_PRODUCER, MAX_SEQUENCE, PREFIX_LENGTH, checksum, decode, encode

PRODUCERS, SEQUENCES = st.integers(0, MAX_PRODUCER), st.integers(0, MAX_SEQUENCE)
PAYLOADS = st.one_of(
    st.just(b"{}"), st.binary(max_size=200), st.dictionaries(st.text(), st.integers()).map(lambda d: json.dumps(d).encode())
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
).map(lambda found: json.dumps(found).encode())
PAYLOAD = b'{"carrier":"UA","flight":1545,"dep_delay":null}'


@given(PRODUCERS, SEQUENCES, PAYLOADS)
def test_what_is_encoded_is_decoded(producer: int, sequence: int, payload: bytes) -> None:
    found = decode(encode(producer, sequence, payload))
    assert found is not None
    assert (found.producer, found.sequence, found.intact) == (producer, sequence, True)


def test_the_value_is_json_with_the_payload_inside() -> None:
    assert json.loads(encode(3, 0xA1B2, PAYLOAD))["payload"] == json.loads(PAYLOAD)
    assert encode(3, 0xA1B2, PAYLOAD)[PREFIX_LENGTH:-1] == PAYLOAD


@given(PRODUCERS, SEQUENCES, PAYLOADS, JSON)
def test_fields_that_a_pipeline_appends_do_not_touch_the_identity(producer: int, sequence: int, payload: bytes, more: bytes) -> None:
    value = encode(producer, sequence, payload)
    assert decode(value[:-1] + b',"processed":' + more + b"}") == decode(value)


WHOLE = encode(3, 0xA1B2, PAYLOAD, b"UA1545")
PASSED_ON = WHOLE[:-1] + b',"source":{"partition":1,"offset":17}}'


@pytest.mark.parametrize(
    "value",
    [
        WHOLE[:-1],
        WHOLE + b"}",
        WHOLE[:-1] + b"garbage",
        WHOLE[:-1] + b"\0",
        WHOLE[:-1] + b',"payload":{"carrier":"AA"}}',
        WHOLE[:-1] + b',"id":"0003-00000000a1b2-00000000-00000000"}',
        WHOLE[:-1] + b',"p\\u0061yload":{}}',
        WHOLE[:-1] + b',"a":1,"payload":null,"b":2}',
        *(PASSED_ON[:length] for length in range(len(WHOLE) - 1, len(PASSED_ON))),
        PASSED_ON + PASSED_ON,
    ],
)
def test_a_value_that_does_not_end_as_it_should_is_damaged(value: bytes) -> None:
    found = decode(value, b"UA1545")
    assert found is not None
    assert (found.producer, found.sequence, found.intact) == (3, 0xA1B2, False)


def test_a_record_belongs_to_its_key() -> None:
    kept = {key: decode(PASSED_ON, key) for key in (b"UA1545", b"UA1546", b"", None)}
    assert {key: found is not None and found.intact for key, found in kept.items()} == {
        b"UA1545": True,
        b"UA1546": False,
        b"": False,
        None: False,
    }
    assert checksum(b"", PAYLOAD) != checksum(None, PAYLOAD)
    keyless = decode(encode(3, 4, PAYLOAD))
    assert keyless is not None
    assert keyless.intact


@given(PRODUCERS, SEQUENCES, PAYLOADS)
def test_every_value_that_ends_before_its_payload_does_has_no_identity(producer: int, sequence: int, payload: bytes) -> None:
    value = encode(producer, sequence, payload)
    assert [length for length in range(len(value) - 1) if decode(value[:length]) is not None] == []


@pytest.mark.parametrize("payload", [PAYLOAD, b"", b"0"])
def test_every_single_flipped_bit_of_prefix_or_payload_is_noticed(payload: bytes) -> None:
    value = encode(3, 0xA1B2, payload)
    whole = decode(value)
    unnoticed = []
    for bit in range(8 * (PREFIX_LENGTH + len(payload))):
        damaged = bytearray(value)
        damaged[bit // 8] ^= 1 << bit % 8
        found = decode(bytes(damaged))
        if (
            found is not None
            and found.intact
            and whole is not None
            and (found.producer, found.sequence) == (whole.producer, whole.sequence)
        ):
            unnoticed.append(bit)
    assert unnoticed == []


def test_a_payload_that_was_changed_contradicts_the_checksum_it_carries() -> None:
    found = decode(encode(1, 2, PAYLOAD).replace(b"1545", b"1546"))
    assert found is not None
    assert not found.intact
    assert (found.producer, found.sequence) == (1, 2)


@pytest.mark.parametrize("value", [None, b"", b"{}", b'{"id":"x"}', b'{"id":1,"payload":{}}', b" " + encode(1, 2, PAYLOAD), PAYLOAD])
def test_what_is_not_ours_has_no_identity(value: bytes | None) -> None:
    assert decode(value) is None


@given(st.binary(max_size=300))
def test_decoding_anything_never_raises(value: bytes) -> None:
    decode(value)


@pytest.mark.parametrize(("producer", "sequence"), [(-1, 0), (MAX_PRODUCER + 1, 0), (0, -1), (0, MAX_SEQUENCE + 1)])
def test_an_identity_that_does_not_fit_is_refused_by_its_numbers(producer: int, sequence: int) -> None:
    with pytest.raises(ValueError, match=f"producer {producer} .*sequence {sequence} "):
        encode(producer, sequence, b"{}")
