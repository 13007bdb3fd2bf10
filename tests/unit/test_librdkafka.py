"""How Arrow's memory and librdkafka's structures fit together, without a broker."""

from __future__ import annotations

import ctypes

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamproof.kafka.librdkafka import ARGUMENT, MESSAGE, Argument, KafkaFailed, Message, TransactionalProducer, addresses, library

TYPES = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]


@given(st.lists(st.one_of(st.none(), st.text(max_size=12)), max_size=20), st.sampled_from(TYPES), st.integers(0, 20), st.integers(0, 20))
def test_every_element_lies_where_addresses_says(values: list[str | None], kind: pa.DataType, start: int, length: int) -> None:
    expected = [None if value is None else value.encode() for value in values]
    array = pa.array(values if "string" in str(kind) else expected, kind).slice(start, length)
    places, sizes = addresses(array)
    found = [ctypes.string_at(int(place), int(size)) if place else None for place, size in zip(places, sizes, strict=True)]
    assert found == expected[start : start + length]


def test_an_empty_value_is_not_null() -> None:
    places, sizes = addresses(pa.array([b""], pa.binary()))
    assert places[0] != 0
    assert sizes[0] == 0


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="expected binary or string, found int64"):
        addresses(pa.array([1]))


def test_the_structures_have_the_layout_of_rdkafka_h_on_a_64_bit_machine() -> None:
    offsets = {name: getattr(Message, name).offset for name, *_ in Message._fields_}
    assert offsets == {
        "err": 0,
        "rkt": 8,
        "partition": 16,
        "payload": 24,
        "len": 32,
        "key": 40,
        "key_len": 48,
        "offset": 56,
        "_private": 64,
    }
    assert {name: getattr(Argument, name).offset for name, *_ in Argument._fields_} == {
        "vtype": 0,
        "first": 8,
        "second": 16,
        "third": 24,
        "_pad": 32,
    }
    assert MESSAGE.itemsize == ctypes.sizeof(Message) == 72
    assert ARGUMENT.itemsize == ctypes.sizeof(Argument) == 8 + 64


def test_the_library_is_the_one_that_confluent_kafka_uses() -> None:
    import confluent_kafka

    assert library().rd_kafka_version() == confluent_kafka.libversion()[1]


def test_a_setting_that_librdkafka_does_not_know_is_named() -> None:
    with pytest.raises(KafkaFailed, match=r'producer t: No such configuration property: "nonsense"'):
        TransactionalProducer({"transactional.id": "t", "nonsense": 1})


def test_settings_that_do_not_fit_each_other_are_named() -> None:
    with pytest.raises(KafkaFailed, match="idempotence"):
        TransactionalProducer({"transactional.id": "t", "enable.idempotence": "false"})


def test_closing_twice_is_closing() -> None:
    producer = TransactionalProducer({"transactional.id": "t", "log_level": 0})
    producer.close()
    producer.close()


def test_keys_and_values_must_be_as_many() -> None:
    with (
        TransactionalProducer({"transactional.id": "t", "log_level": 0}) as producer,
        pytest.raises(ValueError, match="as many keys as values, found 1 and 2"),
    ):
        producer.produce("topic", pa.nulls(1, pa.binary()), pa.nulls(2, pa.binary()), [], 1)
