"""A secured Kafka that somebody else runs: one broker of its own, with its authority, its users and their rights, and proxies in front.

    listeners   DIRECT, DRIVER, EXECUTORS       TLS and SCRAM-SHA-512, for a user with a password
                MDIRECT, MDRIVER, MEXECUTORS    TLS and a certificate of the client's own
                ADMIN                           the broker's own and the administrator's, by certificate
    proxies     kafka-driver, kafka-executors, mutual-driver, mutual-executors, and somebody else's

Nobody may do anything without a right that was given (``StandardAuthorizer``, ``allow.everyone.if.no.acl.found=false``).
"""

from __future__ import annotations

import ipaddress
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from streamproof import settings
from streamproof.kafka.servers import Access, Servers, librdkafka
from streamproof.testbed import install, java
from streamproof.testbed.kafka import Cluster, wait_until_answering
from streamproof.testbed.process import FreePorts
from streamproof.testbed.toxiproxy import Proxies

USER, CLIENT = "streamproof", "client"
WAYS = ("direct", "driver", "executors")
ANSWER_S, READY_S = 20.0, 90.0
LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
logger.authorizer.name = kafka.authorizer.logger
logger.authorizer.level = INFO
"""


class Authority:
    """Issues certificates, as PEM files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = _name("an authority of a test")
        self.file = folder / "ca.pem"
        made = _certificate(self._name, self._key, self._name, self._key, [x509.BasicConstraints(ca=True, path_length=None)])
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *also: str) -> tuple[Path, Path]:
        """A certificate of that common name, which holds the names ``also``, and its key, which only its owner can read."""
        key = ec.generate_private_key(ec.SECP256R1())
        held: list[x509.ExtensionType] = [x509.SubjectAlternativeName([_alternative(each) for each in also])] if also else []
        made = _certificate(_name(name), key, self._name, self._key, held)
        certificate, private = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        private.touch(mode=0o600)
        private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        return certificate, private


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificate(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuers_key: ec.EllipticCurvePrivateKey,
    extensions: Iterable[x509.ExtensionType],
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=2))
    for extension in extensions:
        builder = builder.add_extension(extension, isinstance(extension, x509.BasicConstraints))
    return builder.sign(issuers_key, hashes.SHA256())


@dataclass(frozen=True)
class Secured:
    """A secured Kafka that runs. ``password`` is that of :data:`USER`."""

    folder: Path
    ports: dict[str, int]
    toxiproxy: int
    authority: Authority
    password: str
    data: Path

    def address(self, way: str, *, mutual: bool = False) -> str:
        listener = f"{'m' if mutual else ''}{way}"
        return f"127.0.0.1:{self.ports[listener if way == 'direct' else f'{listener}-proxy']}"

    def described(self, credentials: dict[str, Any] | None = None, *, mutual: bool = False) -> dict[str, Any]:
        """What an experiment says of it: a login with ``credentials``, or a certificate of the client's own."""
        tls: dict[str, Any] = {"ca": str(self.authority.file)}
        if mutual:
            tls |= {"certificate": str(self.folder / f"{CLIENT}.pem"), "key": str(self.folder / f"{CLIENT}.key")}
        login = {} if mutual else {"sasl": {"mechanism": "SCRAM-SHA-512", "credentials": credentials}}
        kind = "mutual" if mutual else "kafka"
        return {
            "kafka": {**{way: self.address(way, mutual=mutual) for way in WAYS}, "tls": tls, **login},
            "may_break": {
                "toxiproxy": f"127.0.0.1:{self.toxiproxy}",
                "driver": [f"{kind}-driver"],
                "executors": [f"{kind}-executors"],
            },
        }

    @property
    def proxies(self) -> Proxies:
        return Proxies(self.toxiproxy, "127.0.0.1")

    @property
    def administrators(self) -> Servers:
        """The cluster as its administrator reaches it."""
        access = Access(str(self.authority.file), str(self.folder / "admin.pem"), str(self.folder / "admin.key"))
        return Servers(f"127.0.0.1:{self.ports['admin']}", access)

    @property
    def admin(self) -> AdminClient:
        return AdminClient({**librdkafka(self.administrators), "log_level": 0})

    def cluster(self) -> Cluster:
        return Cluster(self.administrators)

    def set_password(self, user: str, password: str) -> None:
        upsertion = UserScramCredentialUpsertion(user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode())
        admin = self.admin  # it must live as long as its answers are waited for
        for future in admin.alter_user_scram_credentials([upsertion]).values():
            future.result(ANSWER_S)

    def allow(self, user: str, kind: str, name: str, prefixed: bool, *operations: str) -> None:
        """Give a right to a user."""
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        bindings = [
            AclBinding(ResourceType[kind], name, pattern, user, "*", AclOperation[operation], AclPermissionType.ALLOW)
            for operation in operations
        ]
        admin = self.admin
        for future in admin.create_acls(bindings).values():
            future.result(ANSWER_S)

    def allow_nothing(self) -> None:
        """Take every right away."""
        every = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
        admin = self.admin
        for future in admin.delete_acls([every]).values():
            future.result(ANSWER_S)

    def refused(self) -> list[str]:
        """What the authorizer refused so far, in its own words; the names that a probe has echoed are no topics."""
        denied = [line for line in (self.folder / "broker.log").read_text().splitlines() if " is Denied " in line]
        return [line for line in denied if not re.search(r"Topic:LITERAL:[0-9-]+ ", line)]

    def make_topic(self, name: str, records: int, group: str) -> None:
        """A topic of somebody else's, with records, and a group that has read some of them."""
        admin = self.admin
        (made,) = admin.create_topics([NewTopic(name, 2, 1)]).values()
        made.result(ANSWER_S)
        self.cluster().wait_for_partitions(name, 2)
        producer: Producer = Producer({**librdkafka(self.administrators), "log_level": 0})
        for number in range(records):
            producer.produce(name, value=b"somebody else's %d" % number, partition=number % 2)
        assert producer.flush(ANSWER_S) == 0
        consumer: Consumer = Consumer({**librdkafka(self.administrators), "group.id": group, "enable.auto.commit": False, "log_level": 0})
        consumer.commit(offsets=[TopicPartition(name, 0, 3), TopicPartition(name, 1, 5)], asynchronous=False)
        consumer.close()


@contextmanager
def secured() -> Iterator[Secured]:
    """A secured Kafka and a Toxiproxy in front of it; both are gone afterwards, with all that they held."""
    folder = Path(tempfile.mkdtemp(prefix="streamproof-secured-")).resolve()
    listeners = [f"{kind}{way}" for kind in ("", "m") for way in WAYS]
    names = [*listeners, *(f"{each}-proxy" for each in listeners if not each.endswith("direct")), "admin", "controller", "other-proxy"]
    running: list[subprocess.Popen[bytes]] = []
    try:
        with FreePorts() as free:
            ports, toxiproxy = {name: free.take() for name in names}, free.take()
            authority, data = Authority(folder), folder / "data"
            kafka = Secured(folder, ports, toxiproxy, authority, secrets.token_urlsafe(18), data)
            for name in ("broker", "admin", CLIENT):
                authority.issue(name, "127.0.0.1", "localhost")
            _start(kafka, running)
            wait_until_answering(kafka.administrators, timeout_s=READY_S)
            for listener in listeners:
                if not listener.endswith("direct"):
                    name = f"mutual-{listener[1:]}" if listener.startswith("m") else f"kafka-{listener}"
                    kafka.proxies.ensure(name, f"127.0.0.1:{ports[f'{listener}-proxy']}", f"127.0.0.1:{ports[listener]}")
            kafka.proxies.ensure("somebody-elses", f"127.0.0.1:{ports['other-proxy']}", f"127.0.0.1:{ports['direct']}")
        kafka.set_password(USER, kafka.password)
        yield kafka
    finally:
        for process in running:
            process.kill()
            process.wait(ANSWER_S)
        shutil.rmtree(folder)


def _start(kafka: Secured, running: list[subprocess.Popen[bytes]]) -> None:
    folder, (configuration, logging) = kafka.folder, (kafka.folder / "broker.properties", kafka.folder / "log4j2.properties")
    (folder / "broker-store.pem").write_text((folder / "broker.key").read_text() + (folder / "broker.pem").read_text())
    configuration.write_text("".join(f"{name}={value}\n" for name, value in _configuration(kafka).items()))
    logging.write_text(LOG4J)
    base = [str(install.java_executable()), "-cp", f"{settings.cache() / 'jars' / 'kafka'}/*", f"-Dlog4j2.configurationFile={logging}"]
    base += [*java.QUICK_START, "-Xmx512m"]
    format_it = ["kafka.tools.StorageTool", "format", "-t", "c3RyZWFtcHJvb2ZfX19fXw", "-c", str(configuration)]
    subprocess.run([*base, *format_it], check=True, capture_output=True, timeout=READY_S, cwd=folder)
    toxiproxy = [str(settings.cache() / "bin" / "toxiproxy-server"), "-host", "127.0.0.1", "-port", str(kafka.toxiproxy)]
    for name, command in (("broker", [*base, "kafka.Kafka", str(configuration)]), ("toxiproxy", toxiproxy)):
        with open(folder / f"{name}.log", "wb") as log:
            running.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True))
    deadline = time.monotonic() + READY_S
    while (folder / "toxiproxy.log").read_bytes() == b"" and time.monotonic() < deadline:
        time.sleep(0.05)


def _configuration(kafka: Secured) -> dict[str, object]:
    ports, mutual = kafka.ports, [f"m{way}" for way in WAYS]
    listeners = [*WAYS, *mutual, "admin", "controller"]
    addresses = {name: f"127.0.0.1:{ports[name]}" for name in listeners}
    advertised = {name: f"127.0.0.1:{ports.get(f'{name}-proxy', ports[name])}" for name in listeners if name != "controller"}
    with_certificate = [*mutual, "admin", "controller"]
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{ports['controller']}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "ADMIN",
        "listeners": ",".join(f"{name.upper()}://{address}" for name, address in addresses.items()),
        "advertised.listeners": ",".join(f"{name.upper()}://{address}" for name, address in advertised.items()),
        "listener.security.protocol.map": ",".join(
            f"{name.upper()}:{'SSL' if name in with_certificate else 'SASL_SSL'}" for name in listeners
        ),
        **{f"listener.name.{name}.ssl.client.auth": "required" for name in with_certificate},
        **{
            f"listener.name.{name}.scram-sha-512.sasl.jaas.config": ("org.apache.kafka.common.security.scram.ScramLoginModule required;")
            for name in WAYS
        },
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": kafka.folder / "broker-store.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": kafka.authority.file,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": "User:CN=broker;User:CN=admin",
        "log.dirs": kafka.data,
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 2,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 2,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        "log.segment.delete.delay.ms": 1000,
    }
