"""Kafka's Fetch request (version 11), as a read-committed reader sends it: a broker's answer as bytes, to be decoded elsewhere.

A client library makes an object of each record, or at least a call. What is read here to its end has some million records a
second to give, and all that is wanted of each is a number or two.

One connection to each broker that leads a partition; a request is under way to each while the last answers are decoded.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from streamproof.kafka import login
from streamproof.kafka.asking import retriable
from streamproof.kafka.servers import Servers, access_of
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError

PARTITION_BYTES = 4 << 20
ANSWER_BYTES = 16 << 20
WAIT_MS = 100
REQUEST_S = 30.0
POLL_S = 0.1
_FETCH, _VERSION, _CLIENT, _READ_COMMITTED = 1, 11, b"streamproof", 1
_OUT_OF_RANGE = 1


@dataclass(frozen=True)
class Piece:
    """What a broker had of one partition: ``data`` is its record batches, ``aborted`` the transactions among them that were aborted, as
    (producer, first offset)."""

    partition: int
    data: np.ndarray
    aborted: tuple[tuple[int, int], ...]


class Fetcher:
    """Reads partitions of a topic side by side, from ``begins`` on or all of them. ``advance`` what was read before the next ``pieces``."""

    def __init__(self, cluster: Cluster, topic: str, ends: Mapping[int, int], begins: Mapping[int, int] | None = None) -> None:
        self._cluster, self._topic, self._ends = cluster, topic, dict(ends)
        self._next = dict.fromkeys(ends, 0) | dict(begins or {})
        self._connections: dict[str, _Connection] = {}

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._disconnect()

    def advance(self, partition: int, offset: int) -> None:
        """Go on in ``partition`` at ``offset``."""
        self._next[partition] = offset

    def unread(self) -> list[int]:
        return [partition for partition, end in self._ends.items() if self._next[partition] < end]

    def pieces(self, deadline: float) -> Iterator[Piece]:
        """What each leader has next, until ``deadline`` (monotonic). Raises TestbedError when a partition has lost what is to be read."""
        leaders: dict[int, str] = {}
        while (unread := self.unread()) and time.monotonic() < deadline:
            try:
                leaders = leaders or self._cluster.leader_addresses(self._topic)
                asked: dict[str, list[int]] = {}
                for partition in unread:
                    asked.setdefault(leaders[partition], []).append(partition)
                for address, partitions in asked.items():
                    wanted = {partition: self._next[partition] for partition in partitions}
                    self._connection(address).ask(self._topic, wanted)
                for address in asked:
                    yield from self._connection(address).answer(deadline)
            except (OSError, KeyError, _Again):  # a broker has ended, or a partition has another leader or none: that is asked again
                self._disconnect()
                leaders = {}
                time.sleep(POLL_S)

    def _connection(self, address: str) -> _Connection:
        if address not in self._connections:
            self._connections[address] = _Connection(Servers(address, access_of(self._cluster.bootstrap)))
        return self._connections[address]

    def _disconnect(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


class _Again(Exception):
    """A broker cannot answer just now: it does not lead a partition any more, or not yet."""


class _Connection:
    def __init__(self, address: str) -> None:
        self._socket = login.connected(address, REQUEST_S)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._number = 0

    def ask(self, topic: str, offsets: Mapping[int, int]) -> None:
        self._number += 1
        # The partition that was last among those asked for goes first: a broker fills its answer in the order of the request.
        order = list(offsets)
        turn = self._number % len(order)
        partitions = b"".join(
            struct.pack(">iiqqi", number, -1, offsets[number], -1, PARTITION_BYTES) for number in order[turn:] + order[:turn]
        )
        name = topic.encode()
        body = b"".join(
            [
                struct.pack(">hhih", _FETCH, _VERSION, self._number, len(_CLIENT)) + _CLIENT,
                struct.pack(">iiiibii", -1, WAIT_MS, 1, ANSWER_BYTES, _READ_COMMITTED, 0, -1),
                struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", len(order)) + partitions,
                struct.pack(">ih", 0, 0),
            ]
        )
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def answer(self, deadline: float) -> Iterator[Piece]:
        """The pieces of the answer to the last request. All of it is read before the first is given."""
        self._socket.settimeout(max(0.001, min(REQUEST_S, deadline - time.monotonic())))
        size = int.from_bytes(self._read(4))
        buffer = np.empty(size, np.uint8)
        self._fill(buffer.data)
        yield from _pieces(buffer)

    def _read(self, size: int) -> bytes:
        data = bytearray(size)
        self._fill(memoryview(data))
        return bytes(data)

    def _fill(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            got = self._socket.recv_into(view[done:])
            if not got:
                raise ConnectionResetError("the broker closed the connection")
            done += got

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()


def _pieces(answer: np.ndarray) -> Iterator[Piece]:
    """The partitions of an answer."""
    reader = _Reader(answer.data)
    _, _, refused, _, topics = reader.take(">iihii")
    if retriable(refused):
        raise _Again
    if refused:
        raise TestbedError(f"kafka refused to be read: error {refused}")
    for _ in range(topics):
        reader.skip(*reader.take(">h"))
        (partitions,) = reader.take(">i")
        for _ in range(partitions):
            partition, error, _, _, _, transactions = reader.take(">ihqqqi")
            aborted = tuple((int(producer), int(first)) for producer, first in (reader.take(">qq") for _ in range(max(transactions, 0))))
            _, length = reader.take(">ii")
            begin = reader.at
            reader.skip(max(length, 0))
            if retriable(error):
                raise _Again
            if error:
                why = "what was there is deleted" if error == _OUT_OF_RANGE else f"error {error}"
                raise TestbedError(f"partition {partition} of the output cannot be read: {why}")
            if length > 0:
                yield Piece(partition, answer[begin : begin + length], aborted)


class _Reader:
    """Reads one field after the other."""

    def __init__(self, view: memoryview) -> None:
        self._view, self.at = view, 0

    def take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(form, self._view, self.at)
        self.at += struct.calcsize(form)
        return values

    def skip(self, size: int) -> None:
        self.at += size
