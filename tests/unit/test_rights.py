"""The requests by which a run asks for its rights are Kafka's own, and so are the errors read out of the answers: by another codec."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin.topics import DeleteRecordsRequest, DeleteRecordsResponse
from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetCommitResponse
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse

from streamproof.testbed import rights
from streamproof.testbed.rights import _Probe

TOPIC = "sp-a-run.rights"


def _exchanged(ask: Callable[[_Probe, socket.socket], int], answer: Any, version: int) -> tuple[int, tuple[int, int], bytes]:
    """What the probe makes of an answer, and the request that it has sent: its kind and version, and its body."""
    ours, theirs = socket.socketpair()
    seen: list[bytes] = []

    def serve() -> None:
        (size,) = struct.unpack(">i", theirs.recv(4))
        seen.append(theirs.recv(size))
        body = struct.pack(">i", struct.unpack_from(">i", seen[0], 4)[0]) + bytes(answer.encode(version=version))
        theirs.sendall(struct.pack(">i", len(body)) + body)

    served = threading.Thread(target=serve)
    served.start()
    probe = object.__new__(_Probe)
    probe._name = TOPIC
    with ours, theirs:
        code = ask(probe, ours)
        served.join(10)
    return code, struct.unpack_from(">hh", seen[0]), seen[0][10:]


CASES = [
    pytest.param(
        _Probe._delete_records,
        DeleteRecordsRequest,
        0,
        lambda code: {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "low_watermark": 7, "error_code": code}]}]},
        DeleteRecordsResponse,
        id="delete",
    ),
    pytest.param(
        _Probe._commit,
        OffsetCommitRequest,
        2,
        lambda code: {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "error_code": code}]}]},
        OffsetCommitResponse,
        id="commit",
    ),
    pytest.param(
        _Probe._produce,
        ProduceRequest,
        3,
        lambda code: {
            "responses": [
                {
                    "name": TOPIC,
                    "partition_responses": [{"index": 0, "error_code": code, "base_offset": 1, "log_append_time_ms": -1}],
                }
            ]
        },
        ProduceResponse,
        id="write",
    ),
]


def _made(kind: Any, fields: dict[str, Any]) -> Any:
    """A message of kafka-python with these fields, at any depth."""
    nested = {}
    for name, values in fields.items():
        if isinstance(values, list):
            (inner,) = [each for each in vars(kind).values() if isinstance(each, type) and set(values[0]) <= set(vars(each))]
            nested[name] = [_made(inner, value) for value in values]
    return kind(**{**fields, **nested})


@pytest.mark.parametrize("code", [0, 3, 29, 30])
@pytest.mark.parametrize(("ask", "request_type", "version", "fields", "response_type"), CASES)
def test_a_request_is_what_another_codec_reads_and_its_error_is_found(
    ask: Callable[[_Probe, socket.socket], int],
    request_type: Any,
    version: int,
    fields: Callable[[int], dict[str, Any]],
    response_type: Any,
    code: int,
) -> None:
    found, (key, sent_version), body = _exchanged(ask, _made(response_type, fields(code)), version)
    assert found == code
    assert (key, sent_version) == (request_type.API_KEY, version)
    request = request_type.decode(body, version=version)
    request._header = None  # it was read without one
    topics = request.topic_data if request_type is ProduceRequest else request.topics
    assert [topic.name for topic in topics] == [TOPIC]
    assert bytes(request.encode(version=version)) == body, "to the last byte"


def test_every_right_has_a_name_and_an_option_of_kafkas_own_tool() -> None:
    assert len({right.name for right in rights.RIGHTS}) == len(rights.RIGHTS)
    assert {right.option for right in rights.RIGHTS} == {"topic", "group", "transactional-id"}
    assert FetchRequest.API_KEY == 1
    assert FetchResponse.API_KEY == 1
