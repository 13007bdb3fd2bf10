"""A Kafka that was not started here: where it is, and what of it may be broken.

The rest of the testbed (Spark, PostgreSQL) is the embedded one. Of that Kafka a run uses topics of its own, which it makes and deletes.
What may be broken is an allow-list: the proxies that are named, at the Toxiproxy that is named. Nothing else there is touched, also not to
heal.

    kafka:
      direct: kafka.example:9092           for who judges
      driver: proxies.example:9095         for the job's driver; several brokers are separated by commas
      executors: proxies.example:9097      for its tasks
      tls:                                 plaintext without it
        ca: ca.pem                         the authorities that the brokers' certificates may come from
        certificate: client.pem            of the client's own, with its key, which only its owner can read
        key: client.key
      sasl:
        mechanism: SCRAM-SHA-512
        credentials: {environment: {username: KAFKA_USER, password: KAFKA_PASSWORD}}
    may_break:
      toxiproxy: proxies.example:8474
      driver: [kafka-driver]               the proxy of each address above, in that order
      executors: [kafka-executors]

Files are looked for from the project's folder. Where credentials can be: :mod:`streamproof.testbed.credentials`.
Each broker must advertise the proxies' addresses to who comes through them, as those of the embedded testbed do
(``streamproof.testbed.kafka``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamproof.kafka import servers
from streamproof.kafka.servers import Access, Servers
from streamproof.testbed import credentials
from streamproof.testbed.credentials import Credentials, refuse_secrets
from streamproof.testbed.embedded import POSTGRES_PROXY, Role, Testbed
from streamproof.testbed.process import TestbedError
from streamproof.testbed.toxiproxy import Proxies

_ONE = r"[^\s:,/]+:\d{1,5}"
Addresses = Annotated[str, Field(pattern=rf"^{_ONE}(,{_ONE})*$", description="host:port, several separated by commas")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Tls(_Part):
    """How a client checks the brokers, and with ``certificate`` and ``key`` how they know it."""

    ca: str = Field(min_length=1, description="A file with the certificates of the authorities that the brokers' may come from, in PEM")
    certificate: str | None = Field(None, description="The client's own certificate and those between it and an authority, in PEM")
    key: str | None = Field(None, description="Its key in PEM, without a passphrase, in a file that only its owner can read")

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError(f"expected `certificate` and `key`, came only {'certificate' if self.key is None else 'key'}")
        return self


class Sasl(_Part):
    mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = "SCRAM-SHA-512"
    credentials: Credentials


class Kafka(_Part):
    direct: Addresses
    driver: Addresses
    executors: Addresses
    tls: Tls | None = None
    sasl: Sasl | None = None

    @model_validator(mode="after")
    def _encrypted(self) -> Self:
        if self.sasl is not None and self.tls is None:
            raise ValueError("sasl: a login goes over an encrypted connection only: say in `tls: {ca: …}` how the brokers are known")
        return self

    def access(self, run: str) -> Access:
        """How a client of that run gets in. What only its owner may read is kept beside the runs, once. Raises TestbedError naming what of
        it is missing."""
        if self.tls is None:
            return Access()
        folder = credentials.folder_of(run)
        access = Access(str(credentials.at(self.tls.ca)), mechanism="" if self.sasl is None else self.sasl.mechanism, folder=str(folder))
        if self.tls.certificate is not None and self.tls.key is not None:
            access = replace(access, certificate=str(credentials.at(self.tls.certificate)), key=str(credentials.at(self.tls.key)))
        if not (folder / servers.PROPERTIES).exists():
            self._keep(access, folder)
        return access

    def _keep(self, access: Access, folder: Path) -> None:
        credentials.readable(access.ca, "the external Kafka: tls.ca")
        if access.key:
            credentials.readable(access.certificate, "the external Kafka: tls.certificate")
            credentials.owners_only(access.key, "the external Kafka: tls.key")
        properties = servers.java(access)
        if access.key:
            credentials.keep(folder, servers.KEYSTORE, f"{Path(access.key).read_text()}\n{Path(access.certificate).read_text()}")
        if self.sasl is not None:
            login = self.sasl.credentials.login("the external Kafka", os.environ)
            credentials.keep(folder, servers.LOGIN, json.dumps({"username": login.username, "password": login.password}))
            properties[servers.JAAS] = servers.jaas(access.mechanism, login.username, login.password)
        credentials.keep(folder, servers.PROPERTIES, "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items()))


def _escaped(value: str) -> str:
    """A value as Java's Properties read it, whatever the encoding of the file."""
    return "".join(char if " " <= char <= "~" else f"\\u{ord(char):04x}" for char in value.replace("\\", "\\\\"))


class MayBreak(_Part):
    """The allow-list. Empty: nothing of that Kafka may be broken."""

    toxiproxy: str | None = Field(None, pattern=rf"^{_ONE}$", description="host:port of its HTTP interface")
    driver: tuple[str, ...] = ()
    executors: tuple[str, ...] = ()


class External(_Part):
    kafka: Kafka
    may_break: MayBreak = MayBreak()

    @model_validator(mode="before")
    @classmethod
    def _without_secrets(cls, described: Any) -> Any:
        refuse_secrets(described, "external")
        return described

    @model_validator(mode="after")
    def _each_proxy_has_an_address(self) -> Self:
        names = [*self.may_break.driver, *self.may_break.executors]
        if names and self.may_break.toxiproxy is None:
            raise ValueError(f"may_break: {', '.join(names)} may be broken, but at which `toxiproxy`?")
        if POSTGRES_PROXY in names or len(set(names)) < len(names):
            raise ValueError(f"may_break: expected different names, none of them {POSTGRES_PROXY!r}, came {', '.join(names)}")
        for who in ("driver", "executors"):
            named, addresses = getattr(self.may_break, who), getattr(self.kafka, who).split(",")
            if named and len(named) != len(addresses):
                raise ValueError(f"may_break.{who}: expected the proxy of each of {', '.join(addresses)}, came {', '.join(named)}")
        return self

    @property
    def links(self) -> dict[str, str]:
        """The address of each proxy that may be broken, by its name."""
        driver = zip(self.may_break.driver, self.kafka.driver.split(","), strict=False)
        return dict([*driver, *zip(self.may_break.executors, self.kafka.executors.split(","), strict=False)])

    def refusal(self, ways: frozenset[Role] | None) -> str | None:
        """Why a fault that breaks these links is not allowed here, None when it is."""
        if ways is None:
            return "it needs a Kafka that was started here, not an external one"
        missing = sorted(way for way in ways if not getattr(self.may_break, way))
        if missing:
            return f"it breaks the link of {' and '.join(missing)} to Kafka, and the external Kafka's `may_break` names no proxy there"
        return None


class AllowedProxies(Proxies):
    """The proxies of the testbed's own Toxiproxy, and of another one those that may be broken."""

    def __init__(self, port: int, external: External) -> None:
        super().__init__(port)
        self._names = frozenset(external.links)
        host, _, outside = (external.may_break.toxiproxy or "").rpartition(":")
        self._outside = Proxies(int(outside), host) if outside else None

    def _proxy(self, name: str) -> Any:
        if name == POSTGRES_PROXY:
            return super()._proxy(name)
        if self._outside is None or name not in self._names:
            raise TestbedError(f"proxy {name!r} is not one of those that may be broken: {', '.join(sorted(self._names)) or 'none'}")
        return self._outside._proxy(name)


@dataclass(frozen=True)
class Outside(Testbed):
    """An embedded testbed whose Kafka is not used: another takes its place. ``run`` is the name of the run."""

    external: External
    run: str

    @property
    def access(self) -> Access:
        """How a client gets into that Kafka. Raises TestbedError where the credentials are not there."""
        return self.external.kafka.access(self.run)

    @property
    def direct_kafka(self) -> str:
        return Servers(self.external.kafka.direct, self.access)

    @property
    def driver_kafka(self) -> str:
        return Servers(self.external.kafka.driver, self.access)

    @property
    def executors_kafka(self) -> str:
        return Servers(self.external.kafka.executors, self.access)

    @property
    def links(self) -> dict[str, str]:
        own = {name: Servers(address, self.access) for name, address in self.external.links.items()}
        return {POSTGRES_PROXY: super().links[POSTGRES_PROXY], **own}

    def kafka_links(self, role: Role = "pipeline") -> dict[str, str]:
        """A way on which nothing may be broken goes by its address."""
        links: dict[str, str] = {}
        for who in ("driver", "executors") if role == "pipeline" else (role,):
            addresses = getattr(self.external.kafka, who).split(",")
            links |= zip(getattr(self.external.may_break, who) or addresses, addresses, strict=True)
        return {name: Servers(address, self.access) for name, address in links.items()}

    def kafka_proxies(self, role: Role = "pipeline") -> list[str]:
        may_break = self.external.may_break
        return [*(may_break.driver if role != "executors" else ()), *(may_break.executors if role != "driver" else ())]

    def read_messages(self, servers: Collection[str]) -> list[str]:
        if "kafka" in servers:
            raise TestbedError("the messages of an external Kafka cannot be read: its proxies are not in this testbed's Toxiproxy")
        return super().read_messages(servers)

    @property
    def proxies(self) -> Proxies:
        return AllowedProxies(self.toxiproxy_port, self.external)


def outside(here: Testbed, external: External, run: str) -> Outside:
    """The testbed ``here`` with the external Kafka in place of its own, for that run."""
    return Outside(**{field.name: getattr(here, field.name) for field in fields(Testbed)}, external=external, run=run)
