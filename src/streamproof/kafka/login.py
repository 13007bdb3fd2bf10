"""A socket to a broker that is ready for requests: connected, encrypted and logged in as :class:`streamproof.kafka.servers.Access` says.

The steps of a login by SASL, each a request of Kafka's (KIP-43, KIP-152):

    1. SaslHandshake v1 names the mechanism
    2. SaslAuthenticate v0 carries the mechanism's own messages: one for PLAIN, two for SCRAM (RFC 5802), of which the second answer proves
       that the broker knows the password too

Checked against: RFC 5802's steps and RFC 7677's test vector (SCRAM-SHA-256), a Kafka 4.1 broker.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
from collections.abc import Callable

from streamproof.kafka.servers import Access, access_of

_HANDSHAKE, _AUTHENTICATE = 17, 36
LEAST_ITERATIONS = 4096
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class LoginRefused(OSError):
    """The broker does not let this client in, or is not the one that knows its password."""


def connected(address: str, timeout_s: float) -> socket.socket:
    """A socket to the one broker at ``address``. Raises OSError, of which ssl.SSLError and LoginRefused are kinds."""
    access = access_of(address)
    host, _, port = str(address).rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=timeout_s)
    try:
        if access.ca:
            connection = context(access).wrap_socket(connection, server_hostname=host)
        if access.mechanism:
            _log_in(connection, access)
    except BaseException:  # whatever it was: the caller has no socket to close
        connection.close()
        raise
    return connection


def context(access: Access) -> ssl.SSLContext:
    """Verifies the broker's certificate and that it holds the name that was connected to. Raises OSError when a file cannot be read."""
    made = ssl.create_default_context(cafile=access.ca)
    if access.key:
        made.load_cert_chain(access.certificate, access.key)
    return made


def _log_in(connection: socket.socket, access: Access) -> None:
    name = access.mechanism.encode()
    answer = ask(connection, _HANDSHAKE, 1, struct.pack(">h", len(name)) + name)
    (code,) = struct.unpack_from(">h", answer)
    if code:
        raise LoginRefused(f"the broker does not take {access.mechanism}: error {code}")

    def exchange(message: bytes) -> bytes:
        reply = ask(connection, _AUTHENTICATE, 0, struct.pack(">i", len(message)) + message)
        (refused,) = struct.unpack_from(">h", reply)
        if refused:
            raise LoginRefused(f"the broker refuses the login by {access.mechanism}: error {refused}")
        (length,) = struct.unpack_from(">h", reply, 2)
        at = 4 + max(length, 0)
        (size,) = struct.unpack_from(">i", reply, at)
        return reply[at + 4 : at + 4 + size]

    user, password = access.login()
    if access.mechanism == "PLAIN":
        exchange(f"\0{user}\0{password}".encode())
    else:
        scram(_HASHES[access.mechanism], user, password, exchange)


def ask(connection: socket.socket, key: int, version: int, body: bytes) -> bytes:
    """The body of the answer to one request of a version before the flexible ones. The client has no name. Raises OSError."""
    request = struct.pack(">hhih", key, version, key, -1) + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    return _read(connection, struct.unpack(">i", _read(connection, 4))[0])[4:]


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise LoginRefused("the broker closed the connection during the login")
        data += part
    return bytes(data)


def scram(hash_name: str, user: str, password: str, exchange: Callable[[bytes], bytes], nonce: str | None = None) -> None:
    """Log in by SCRAM (RFC 5802, without channel binding). ``exchange`` sends a message and returns the answer. Raises LoginRefused when
    the server does not prove that it knows the password."""
    nonce = secrets.token_urlsafe(18) if nonce is None else nonce
    name = user.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={name},r={nonce}"
    first = exchange(b"n,," + bare.encode()).decode()
    fields = _fields(first)
    salt, iterations, both = base64.b64decode(fields["s"]), int(fields["i"]), fields["r"]
    if not both.startswith(nonce) or iterations < LEAST_ITERATIONS:
        raise LoginRefused(f"the broker's challenge is not one to this login, or of less than {LEAST_ITERATIONS} iterations")
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    client_key = _hmac(hash_name, salted, b"Client Key")
    without_proof = f"c=biws,r={both}"
    signed = ",".join([bare, first, without_proof]).encode()
    signature = _hmac(hash_name, hashlib.new(hash_name, client_key).digest(), signed)
    proof = bytes(ours ^ theirs for ours, theirs in zip(client_key, signature, strict=True))
    last = _fields(exchange(f"{without_proof},p={base64.b64encode(proof).decode()}".encode()).decode())
    expected = base64.b64encode(_hmac(hash_name, _hmac(hash_name, salted, b"Server Key"), signed)).decode()
    if not hmac.compare_digest(last.get("v", ""), expected):
        raise LoginRefused("the broker does not prove that it knows the password: it may be another than it says")


def _hmac(hash_name: str, key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hash_name).digest()


def _fields(message: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in message.split(",") if "=" in part)
