"""TLS in front of a PostgreSQL whose build has none: a client's request for it is answered, then all it sends is deciphered and passed on.

As stunnel or a load balancer does it, which many databases have in front of them. A client that does not ask for TLS is turned away.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SSL_REQUEST = struct.pack(">ii", 8, 80877103)
CHUNK, WAIT_S = 1 << 16, 10.0


@contextmanager
def in_front(listen: int, server: int, certificate: Path, key: Path) -> Iterator[None]:
    """While it is entered, clients of the loopback port ``listen`` reach the port ``server`` by TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", listen)) as listener:
        threading.Thread(target=_accept, args=(listener, server, context), daemon=True).start()
        yield
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # ends the thread that accepts


def _accept(listener: socket.socket, server: int, context: ssl.SSLContext) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client, server, context), daemon=True).start()


def _serve(client: socket.socket, server: int, context: ssl.SSLContext) -> None:
    with contextlib.suppress(OSError), client:
        client.settimeout(WAIT_S)
        if client.recv(len(SSL_REQUEST), socket.MSG_WAITALL) != SSL_REQUEST:
            return
        client.sendall(b"S")
        with context.wrap_socket(client, server_side=True) as inside, socket.create_connection(("127.0.0.1", server), WAIT_S) as behind:
            inside.settimeout(None)
            behind.settimeout(None)
            _pass_on(inside, behind)


def _pass_on(inside: ssl.SSLSocket, behind: socket.socket) -> None:
    """In both directions, by one thread: a TLS connection may not be read and written at once."""
    while True:
        ready = [inside] if inside.pending() else select.select([inside, behind], [], [])[0]
        for source in ready:
            data = source.recv(CHUNK)
            if not data:
                return
            (behind if source is inside else inside).sendall(data)
