"""Servers that were not started here: where a Kafka, a PostgreSQL and a Spark are, and what of them may be broken.

What is not described is the embedded one. Of that Kafka a run uses topics of its own, which it makes and deletes.
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
    postgres:
      direct: db.example:5432
      pipeline: proxies.example:5433       for the job
      database: app
      ca: ca.pem
      credentials: {file: /etc/streamproof/postgres.yaml}
    roles: {}                              :mod:`streamproof.testbed.roles`
    spark:
      master: spark://spark.example:7077
      ui: spark.example:8080
    may_break:
      toxiproxy: proxies.example:8474
      driver: [kafka-driver]               the proxy of each address above, in that order
      executors: [kafka-executors]
      postgres: postgres-of-the-job

Files are looked for from the project's folder. Where credentials can be: :mod:`streamproof.testbed.credentials`.
Each broker must advertise the proxies' addresses to who comes through them, as those of the embedded testbed do
(``streamproof.testbed.kafka``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamproof.kafka.servers import Access, Servers
from streamproof.testbed.credentials import refuse_secrets
from streamproof.testbed.embedded import POSTGRES_PROXY, POSTGRES_SERVER, SPARK_SERVERS, Role, Testbed, Way
from streamproof.testbed.external_kafka import ONE_ADDRESS, Kafka
from streamproof.testbed.external_postgres import Postgres
from streamproof.testbed.external_spark import Spark
from streamproof.testbed.postgres import Server
from streamproof.testbed.process import TestbedError
from streamproof.testbed.roles import Template
from streamproof.testbed.toxiproxy import Proxies


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MayBreak(_Part):
    """The allow-list. Empty: nothing of these servers may be broken."""

    toxiproxy: str | None = Field(None, pattern=rf"^{ONE_ADDRESS}$", description="host:port of its HTTP interface")
    driver: tuple[str, ...] = Field((), description="The proxy of each address of kafka.driver, in that order")
    executors: tuple[str, ...] = Field((), description="The same of kafka.executors")
    postgres: str | None = Field(None, min_length=1, description="The proxy before PostgreSQL")


class RoleName(StrEnum):
    """The roles that a template can be for, by the names of ``streamproof.jobs.profile.Role``."""

    DRIVER = "driver"
    WORKERS = "workers"
    COORDINATOR = "coordinator"


class External(_Part):
    kafka: Kafka | None = Field(None, description="The Kafka; the embedded one when absent")
    postgres: Postgres | None = Field(None, description="The PostgreSQL; the embedded one when absent")
    spark: Spark | None = Field(None, description="The Spark; the embedded one when absent")
    may_break: MayBreak = Field(MayBreak(), description="The proxies that may be broken")
    roles: dict[RoleName, Template] = Field(
        default_factory=dict, description="How those who play a role of the job are found and killed, where they run elsewhere"
    )

    @model_validator(mode="before")
    @classmethod
    def _without_secrets(cls, described: Any) -> Any:
        refuse_secrets(described, "external")
        return described

    @model_validator(mode="after")
    def _each_proxy_has_an_address(self) -> Self:
        may_break = self.may_break
        names = [*may_break.driver, *may_break.executors, *([may_break.postgres] if may_break.postgres else [])]
        if self.kafka is None and self.postgres is None and self.spark is None and not self.roles:
            raise ValueError("expected `kafka`, `postgres`, `spark` or `roles`: what runs elsewhere?")
        if names and may_break.toxiproxy is None:
            raise ValueError(f"may_break: {', '.join(names)} may be broken, but at which `toxiproxy`?")
        if POSTGRES_PROXY in names[: len(may_break.driver + may_break.executors)] or len(set(names)) < len(names):
            raise ValueError(f"may_break: expected different names, none of them {POSTGRES_PROXY!r}, came {', '.join(names)}")
        if may_break.postgres is not None and self.postgres is None:
            raise ValueError(f"may_break.postgres: {may_break.postgres} leads to which `postgres`?")
        for who in ("driver", "executors"):
            named, addresses = getattr(may_break, who), self.addresses(who)
            if named and len(named) != len(addresses):
                raise ValueError(f"may_break.{who}: expected the proxy of each of {', '.join(addresses)}, came {', '.join(named)}")
        return self

    def addresses(self, who: str) -> list[str]:
        """The addresses by which driver or executors reach the external Kafka."""
        return [] if self.kafka is None else str(getattr(self.kafka, who)).split(",")

    @property
    def links(self) -> dict[str, str]:
        """The address of each proxy before Kafka that may be broken, by its name."""
        ways = [zip(getattr(self.may_break, who), self.addresses(who), strict=False) for who in ("driver", "executors")]
        return {name: address for way in ways for name, address in way}

    def refusal(self, ways: frozenset[Way] | None) -> str | None:
        """Why a fault that breaks these links is not allowed here, None when it is."""
        if ways is None:
            if self.kafka is None and self.postgres is None:  # links and their messages are the embedded ones
                return None
            server = "Kafka" if self.kafka is not None else "PostgreSQL"
            return f"it needs a {server} that was started here, not an external one"
        if POSTGRES_SERVER in ways and self.postgres is not None:
            return "it needs a PostgreSQL that was started here, not an external one"
        if SPARK_SERVERS in ways and self.spark is not None:
            return "it needs a Spark that was started here, not an external one"
        if "postgres" in ways and self.postgres is not None and self.may_break.postgres is None:
            return "it breaks the link to PostgreSQL, and the external PostgreSQL's `may_break` names no proxy there"
        missing = sorted(way for way in ways & {"driver", "executors"} if not getattr(self.may_break, way))
        if missing and self.kafka is not None:
            return f"it breaks the link of {' and '.join(missing)} to Kafka, and the external Kafka's `may_break` names no proxy there"
        return None


class AllowedProxies(Proxies):
    """The proxies of the testbed's own Toxiproxy, and of another one those that may be broken. The one before PostgreSQL has the same name
    wherever it is."""

    def __init__(self, port: int, external: External, own: Collection[str] = (POSTGRES_PROXY,)) -> None:
        super().__init__(port)
        self._own, self._elsewhere = frozenset(own), {name: name for name in external.links}
        if external.may_break.postgres is not None:
            self._elsewhere[POSTGRES_PROXY] = external.may_break.postgres
        host, _, outside = (external.may_break.toxiproxy or "").rpartition(":")
        self._outside = Proxies(int(outside), host) if outside else None

    def _proxy(self, name: str) -> Any:
        if self._outside is not None and name in self._elsewhere:
            return self._outside._proxy(self._elsewhere[name])
        if name in self._own:
            return super()._proxy(name)
        raise TestbedError(f"proxy {name!r} is not one of those that may be broken: {', '.join(sorted(self._elsewhere)) or 'none'}")


@dataclass(frozen=True)
class Outside(Testbed):
    """An embedded testbed of which another Kafka, or another PostgreSQL, takes the place. ``run`` is the name of the run."""

    external: External
    run: str

    @property
    def access(self) -> Access:
        """How a client gets into that Kafka. Raises TestbedError where the credentials are not there."""
        return Access() if self.external.kafka is None else self.external.kafka.access(self.run)

    def _kafka(self, who: str, embedded: str) -> str:
        return embedded if self.external.kafka is None else Servers(getattr(self.external.kafka, who), self.access)

    @property
    def direct_kafka(self) -> str:
        return self._kafka("direct", super().direct_kafka)

    @property
    def driver_kafka(self) -> str:
        return self._kafka("driver", super().driver_kafka)

    @property
    def executors_kafka(self) -> str:
        return self._kafka("executors", super().executors_kafka)

    @property
    def direct_server(self) -> Server:
        there = self.external.postgres
        return super().direct_server if there is None else there.server(there.direct, self.run)

    @property
    def pipeline_server(self) -> Server:
        there = self.external.postgres
        return super().pipeline_server if there is None else there.server(there.pipeline, self.run)

    @property
    def spark_master(self) -> str:
        return super().spark_master if self.external.spark is None else self.external.spark.master

    @property
    def spark_ui(self) -> int | str:
        return super().spark_ui if self.external.spark is None else self.external.spark.ui

    @property
    def spark_properties(self) -> Path | None:
        return super().spark_properties if self.external.spark is None else self.external.spark.properties_file

    def spark_is_ready(self) -> bool:
        if self.external.spark is None:
            return super().spark_is_ready()
        try:
            return bool(self.external.spark.workers())
        except TestbedError:
            return False

    def template(self, role: str) -> Template | None:
        return {name.value: template for name, template in self.external.roles.items()}.get(role)

    @property
    def links(self) -> dict[str, str]:
        """Those that may be broken."""
        links = {name: Servers(address, self.access) for name, address in self.external.links.items()} if self.external.kafka else {}
        return {**{name: address for name, address in super().links.items() if name in self._own_proxies}, **self._postgres_link, **links}

    @property
    def _own_proxies(self) -> set[str]:
        postgres = {POSTGRES_PROXY} if self.external.postgres is None else set()
        return postgres | (set(super().kafka_proxies()) if self.external.kafka is None else set())

    @property
    def _postgres_link(self) -> dict[str, str]:
        there = self.external.postgres
        return {POSTGRES_PROXY: there.pipeline} if there is not None and self.external.may_break.postgres is not None else {}

    def kafka_links(self, role: Role = "pipeline") -> dict[str, str]:
        """A way on which nothing may be broken goes by its address."""
        if self.external.kafka is None:
            return super().kafka_links(role)
        links: dict[str, str] = {}
        for who in ("driver", "executors") if role == "pipeline" else (role,):
            addresses = self.external.addresses(who)
            links |= zip(getattr(self.external.may_break, who) or addresses, addresses, strict=True)
        return {name: Servers(address, self.access) for name, address in links.items()}

    def kafka_proxies(self, role: Role = "pipeline") -> list[str]:
        if self.external.kafka is None:
            return super().kafka_proxies(role)
        may_break = self.external.may_break
        return [*(may_break.driver if role != "executors" else ()), *(may_break.executors if role != "driver" else ())]

    def read_messages(self, servers: Collection[str]) -> list[str]:
        elsewhere = {"kafka": self.external.kafka, "postgres": self.external.postgres}
        for name in servers:
            if elsewhere.get(name) is not None:
                raise TestbedError(f"the messages of an external {name} cannot be read: its proxies are not in this testbed's Toxiproxy")
        return super().read_messages(servers)

    @property
    def proxies(self) -> Proxies:
        return AllowedProxies(self.toxiproxy_port, self.external, self._own_proxies)


def outside(here: Testbed, external: External, run: str) -> Outside:
    """The testbed ``here`` with the external servers in place of its own, for that run."""
    return Outside(**{field.name: getattr(here, field.name) for field in fields(Testbed)}, external=external, run=run)
