"""Probes: what a client of Kafka or PostgreSQL feels on its way to the server, measured from outside of any job.

An *echo* sends some bytes to the server and gets as many back, in one exchange: a slow link shows in how long a small one takes, a narrow
one in how long a big one does. Kafka echoes the names of topics that it does not know, PostgreSQL a query's parameter.
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import AbstractContextManager, closing
from typing import Protocol

from streamproof.kafka import login
from streamproof.testbed.process import TestbedError

TIMEOUT_S = 30.0
_LONGEST = 249  # name that a topic may have


class Echo(Protocol):
    """Sends about ``size_bytes`` and returns once as many came back. Raises TestbedError when the connection breaks."""

    def __call__(self, size_bytes: int) -> None: ...


def kafka_echo(address: str, timeout_s: float = TIMEOUT_S) -> AbstractContextManager[Echo]:
    """An echo over one connection to Kafka: Metadata v4 without creating topics (KIP-204)."""
    return closing(_KafkaEcho(address, timeout_s))


def postgres_echo(conninfo: str, timeout_s: float = TIMEOUT_S) -> AbstractContextManager[Echo]:
    """An echo over one connection to PostgreSQL."""
    return closing(_PostgresEcho(conninfo, timeout_s))


class _KafkaEcho:
    def __init__(self, address: str, timeout_s: float) -> None:
        self._who = f"kafka behind {address}"
        try:
            self._connection = login.connected(address, timeout_s)
        except OSError as error:
            raise TestbedError(f"{self._who} does not take a probe's connection: {error}") from error

    def __call__(self, size_bytes: int) -> None:
        full, rest = divmod(max(1, size_bytes), _LONGEST)
        names = [b"%0*d" % (_LONGEST, number) for number in range(full)]  # a name that is asked for twice is answered once
        names += [b"-" * rest] if rest else []
        body = struct.pack(">hhihi", 3, 4, 1, -1, len(names))
        body += b"".join(struct.pack(">h", len(name)) + name for name in names) + b"\0"
        try:
            self._connection.sendall(struct.pack(">i", len(body)) + body)
            read(self._connection, struct.unpack(">i", read(self._connection, 4))[0])
        except OSError as error:
            raise TestbedError(f"{self._who} did not answer a probe: {error}") from error

    def close(self) -> None:
        self._connection.close()


class _PostgresEcho:
    def __init__(self, conninfo: str, timeout_s: float) -> None:
        import psycopg

        try:
            self._connection = psycopg.connect(conninfo, autocommit=True, options=f"-c statement_timeout={int(timeout_s * 1000)}")
        except psycopg.OperationalError as error:
            raise TestbedError(f"postgres does not take a probe's connection: {error}") from error

    def __call__(self, size_bytes: int) -> None:
        import psycopg

        try:
            self._connection.execute("SELECT %s::text", ["x" * size_bytes]).fetchone()
        except psycopg.OperationalError as error:
            raise TestbedError(f"postgres did not answer a probe: {error}") from error

    def close(self) -> None:
        self._connection.close()


def seconds(echo: Echo, size_bytes: int, samples: int = 1) -> list[float]:
    """How long each of ``samples`` echoes took, in s."""
    taken = []
    for _ in range(samples):
        begun = time.monotonic()
        echo(size_bytes)
        taken.append(time.monotonic() - begun)
    return taken


def closing_s(address: str, timeout_s: float = TIMEOUT_S) -> float:
    """How long it takes, in s, until a connection whose client has said its last word is closed by the other side."""
    with connect(address, timeout_s) as connection:
        begun = time.monotonic()
        connection.shutdown(socket.SHUT_WR)
        try:
            while connection.recv(1024):
                pass
        except TimeoutError as error:
            raise TestbedError(f"{address} did not close a probe's connection within {timeout_s:.0f} s") from error
        except ConnectionResetError:
            pass
        return time.monotonic() - begun


def connect(address: str, timeout_s: float) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=timeout_s)


def read(connection: socket.socket, size: int) -> bytes:
    """Exactly ``size`` bytes. Raises OSError when the connection ends before."""
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 16))
        if not part:
            raise OSError("the connection was closed")
        data += part
    return bytes(data)
