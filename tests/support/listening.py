"""What listens while something runs: looked for again and again, and asked, without a secret, what it is."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import threading
from collections.abc import Iterator

import psutil

from streamproof.testbed import listeners
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.listeners import Listener
from streamproof.testbed.process import marked

LOOK_S = 0.2
ANSWER_S = 3.0
RPC_REQUEST, RPC_FAILURE = 3, 5  # org.apache.spark.network.protocol.Message.Type


def is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def asked_without_a_secret(host: str, port: int) -> Listener | None:
    """Which kind of listener of a driver or an executor this is, by how it answers a client that knows no secret; None when by none."""
    if b"Expected SaslMessage" in _answer(host, port, _spark_request(b"hello\n")):
        return listeners.SPARK_RPC
    calls_an_object_that_is_not_there = _answer(host, port, b"c\nt\n")
    if calls_an_object_that_is_not_there.startswith(b"!xsAuthentication error"):
        return listeners.PY4J_GATEWAY
    if calls_an_object_that_is_not_there.startswith(b"!xsObject ID unknown"):
        return listeners.PY4J_CALLBACKS
    if _answer(host, port, b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1"):
        return listeners.SPARK_UI
    return None


def _spark_request(body: bytes) -> bytes:
    """A request of Spark's RPC: frame length, type, request id, length of the body, body."""
    return struct.pack(">qbqi", 8 + 1 + 8 + 4 + len(body), RPC_REQUEST, 1, len(body)) + body


def _answer(host: str, port: int, request: bytes) -> bytes:
    """What comes back; empty when nothing comes."""
    try:
        with socket.create_connection((host.removeprefix("::ffff:"), port), ANSWER_S) as connection:
            connection.settimeout(ANSWER_S)
            connection.sendall(request)
            return connection.recv(400)
    except OSError:
        return b""


class Watched:
    """The listeners seen so far: ``kinds`` by (pid, port), and ``unlisted``, those that are on no list. ``hosts`` are all addresses."""

    def __init__(self, testbed: Testbed) -> None:
        self._of_testbed = listeners.of_testbed(testbed)
        self.kinds: dict[tuple[int, int], Listener] = {}
        self.unlisted: dict[tuple[int, int], str] = {}
        self.hosts: set[str] = set()

    def look(self) -> None:
        for at in listeners.listening_sockets(marked()):
            key = at.process.pid, at.port
            self.hosts.add(at.host)
            if key in self.kinds:
                continue
            kind = self._of_testbed.get(at.port) or asked_without_a_secret(at.host, at.port)
            if kind is not None:
                self.kinds[key] = kind
                self.unlisted.pop(key, None)
            else:  # it may be starting or ending: it is asked again at the next look
                with contextlib.suppress(psutil.NoSuchProcess):
                    self.unlisted[key] = f"{at.host}:{at.port} of {' '.join(at.process.cmdline())[:200]}"


@contextlib.contextmanager
def watched(testbed: Testbed) -> Iterator[Watched]:
    """Look at what listens for as long as the body runs."""
    seen, over = Watched(testbed), threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            seen.look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(30)
