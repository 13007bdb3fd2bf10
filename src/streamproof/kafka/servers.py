"""Kafka's addresses, with how a client gets in: what each client library is given to reach a cluster.

:class:`Servers` is a text, ``host:port`` with commas between several, so that whatever takes an address takes one. How a client gets in
goes with it: nothing in plaintext, a certificate authority, a certificate of the client's own, a login by SASL. It holds no secret, only
the names of files that hold them; a client's settings are made when the client is, and are kept nowhere.

    librdkafka      :func:`librdkafka`
    kafka-python    :func:`kafka_python`
    Java's clients  :func:`java`: names of files, which each JVM reads for itself (Kafka's ``FileConfigProvider``, KIP-297)
    a socket        :mod:`streamproof.kafka.login`

Checked against: librdkafka 2.16 (``ssl.endpoint.identification.algorithm`` is ``https``), kafka-python 3.0, kafka-clients 3.9 (stores in
PEM, KIP-651), Kafka 4.1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

LOGIN, PROPERTIES, KEYSTORE = "kafka.json", "kafka.properties", "kafka-client.pem"
"""The files of ``Access.folder``: user name and password, the properties of a Java client, and the client's key with its certificate."""
JAAS = "sasl.jaas.config"


@dataclass(frozen=True)
class Access:
    """How a client gets into a cluster. Without ``ca`` in plaintext.

    ``ca`` is the file with the certificates of the authorities that the brokers' may come from, ``certificate`` and ``key`` the files of
    the client's own. ``mechanism`` is that of SASL; ``folder`` holds the files of a login, which only their owner can read.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    mechanism: str = ""
    folder: str = ""

    @property
    def protocol(self) -> str:
        """Kafka's own name for it (``security.protocol``)."""
        return "PLAINTEXT" if not self.ca else "SASL_SSL" if self.mechanism else "SSL"

    def login(self) -> tuple[str, str]:
        """User name and password. Raises OSError when the file is not there any more."""
        login = json.loads((Path(self.folder) / LOGIN).read_text())
        return login["username"], login["password"]

    @property
    def properties(self) -> str:
        """The file with the properties of a Java client; empty in plaintext."""
        return str(Path(self.folder) / PROPERTIES) if self.ca else ""

    def to_dict(self) -> dict[str, str]:
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def of(cls, data: Mapping[str, str]) -> Self:
        return cls(**data)


PLAINTEXT = Access()


class Servers(str):
    """The addresses of a cluster's brokers, and how a client gets in."""

    access: Access

    def __new__(cls, addresses: str, access: Access = PLAINTEXT) -> Self:
        servers = super().__new__(cls, addresses)
        servers.access = access
        return servers


def access_of(servers: str) -> Access:
    """How a client gets in at these addresses: in plaintext, where nothing else goes with them."""
    return servers.access if isinstance(servers, Servers) else PLAINTEXT


def librdkafka(servers: str) -> dict[str, Any]:
    """The settings by which a client of librdkafka reaches them."""
    access = access_of(servers)
    settings: dict[str, Any] = {"bootstrap.servers": str(servers)}
    if not access.ca:
        return settings
    settings |= {"security.protocol": access.protocol, "ssl.ca.location": access.ca}
    if access.key:
        settings |= {"ssl.certificate.location": access.certificate, "ssl.key.location": access.key}
    if access.mechanism:
        user, password = access.login()
        settings |= {"sasl.mechanism": access.mechanism, "sasl.username": user, "sasl.password": password}
    return settings


def kafka_python(servers: str) -> dict[str, Any]:
    """The arguments by which a client of kafka-python reaches them."""
    access = access_of(servers)
    arguments: dict[str, Any] = {"bootstrap_servers": str(servers).split(",")}
    if not access.ca:
        return arguments
    arguments |= {"security_protocol": access.protocol, "ssl_cafile": access.ca, "ssl_check_hostname": True}
    if access.key:
        arguments |= {"ssl_certfile": access.certificate, "ssl_keyfile": access.key}
    if access.mechanism:
        user, password = access.login()
        arguments |= {"sasl_mechanism": access.mechanism, "sasl_plain_username": user, "sasl_plain_password": password}
    return arguments


def java(access: Access) -> dict[str, str]:
    """The properties by which a Java client gets in, without its addresses and without a secret; ``file`` is a configuration provider
    (:data:`FILE_PROVIDER`), and there must be one where there is a login."""
    if not access.ca:
        return {}
    properties = {
        "security.protocol": access.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": access.ca,
        "ssl.endpoint.identification.algorithm": "https",
    }
    if access.key:
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(Path(access.folder) / KEYSTORE)}
    if access.mechanism:
        properties |= {"sasl.mechanism": access.mechanism, JAAS: f"${{file:{access.properties}:{JAAS}}}"}
    return properties


FILE_PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"


def jaas(mechanism: str, user: str, password: str) -> str:
    """What a Java client needs to log in, as its ``sasl.jaas.config`` has it."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in (user, password)]
    return f'org.apache.kafka.common.security.{module} required username="{quoted[0]}" password="{quoted[1]}";'
