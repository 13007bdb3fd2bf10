"""Servers on the loopback address that a notification is really sent to: one of HTTP, one of mail with TLS and a login."""

from __future__ import annotations

import base64
import datetime
import email
import email.policy
import ipaddress
import json
import socketserver
import ssl
import threading
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class _Served:
    server: socketserver.BaseServer

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])  # type: ignore[index]

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.server.shutdown()
        self.server.server_close()


@dataclass(frozen=True)
class Post:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Webhook(_Served):
    """Answers every POST with ``status``, and keeps it."""

    def __init__(self, status: int = 200) -> None:
        self.posts: list[Post] = []
        posts = self.posts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                posts.append(Post(self.path, dict(self.headers), body))
                self.send_response(status)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)


@dataclass
class Mail:
    sender: str = ""
    to: list[str] = field(default_factory=list)
    message: EmailMessage = field(default_factory=EmailMessage)


class MailServer(_Served):
    """SMTP over TLS, with the certificate in ``authority``. Takes mail from whoever logs in with ``user`` and ``password``."""

    def __init__(self, folder: Path, user: str, password: str) -> None:
        self.mails: list[Mail] = []
        self.logins: list[bool] = []
        self.authority, key = _certificate(folder)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.authority, key)
        mails, logins, right = self.mails, self.logins, f"\0{user}\0{password}".encode()

        class Handler(socketserver.StreamRequestHandler):
            def say(self, line: str) -> None:
                self.wfile.write(f"{line}\r\n".encode())

            def handle(self) -> None:
                self.say("220 test")
                mail, known = Mail(), False
                while line := self.rfile.readline().decode().strip():
                    verb, _, rest = line.partition(" ")
                    match verb.upper():
                        case "EHLO":
                            self.say("250-test")
                            self.say("250 AUTH PLAIN")
                        case "AUTH":
                            known = base64.b64decode(rest.split()[1]) == right
                            logins.append(known)
                            self.say("235 welcome" if known else "535 no")
                        case "MAIL" if known:
                            mail = Mail(sender=_address(rest))
                            self.say("250 ok")
                        case "RCPT" if known:
                            mail.to.append(_address(rest))
                            self.say("250 ok")
                        case "DATA" if known:
                            self.say("354 go on")
                            lines = iter(self.rfile.readline, b".\r\n")
                            mail.message = email.message_from_bytes(b"".join(lines), policy=email.policy.default)  # type: ignore[assignment]
                            mails.append(mail)
                            self.say("250 ok")
                        case "QUIT":
                            self.say("221 bye")
                            return
                        case _:
                            self.say("503 not now")

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

            def get_request(self) -> tuple[Any, Any]:
                connection, address = super().get_request()
                return context.wrap_socket(connection, server_side=True), address

        self.server = Server(("127.0.0.1", 0), Handler)


def _address(rest: str) -> str:
    return rest[rest.index("<") + 1 : rest.index(">")]


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for the loopback address that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return certificate, secret
