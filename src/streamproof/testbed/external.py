"""A Kafka that was not started here: where it is, and what of it may be broken.

The rest of the testbed (Spark, PostgreSQL) is the embedded one. Of that Kafka a run uses topics of its own, which it makes and deletes.
What may be broken is an allow-list: the proxies that are named, at the Toxiproxy that is named. Nothing else there is touched, also not to
heal.

    kafka:
      direct: kafka.example:9092           for who judges
      driver: proxies.example:9095         for the job's driver; several brokers are separated by commas
      executors: proxies.example:9097      for its tasks
    may_break:
      toxiproxy: proxies.example:8474
      driver: [kafka-driver]               the proxy of each address above, in that order
      executors: [kafka-executors]

Each broker must advertise the proxies' addresses to who comes through them, as those of the embedded testbed do
(``streamproof.testbed.kafka``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamproof.testbed.embedded import POSTGRES_PROXY, Role, Testbed
from streamproof.testbed.process import TestbedError
from streamproof.testbed.toxiproxy import Proxies

_ONE = r"[^\s:,/]+:\d{1,5}"
Addresses = Annotated[str, Field(pattern=rf"^{_ONE}(,{_ONE})*$", description="host:port, several separated by commas")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Kafka(_Part):
    direct: Addresses
    driver: Addresses
    executors: Addresses


class MayBreak(_Part):
    """The allow-list. Empty: nothing of that Kafka may be broken."""

    toxiproxy: str | None = Field(None, pattern=rf"^{_ONE}$", description="host:port of its HTTP interface")
    driver: tuple[str, ...] = ()
    executors: tuple[str, ...] = ()


class External(_Part):
    kafka: Kafka
    may_break: MayBreak = MayBreak()

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
    """An embedded testbed whose Kafka is not used: another takes its place."""

    external: External

    @property
    def direct_kafka(self) -> str:
        return self.external.kafka.direct

    @property
    def driver_kafka(self) -> str:
        return self.external.kafka.driver

    @property
    def executors_kafka(self) -> str:
        return self.external.kafka.executors

    @property
    def links(self) -> dict[str, str]:
        return {POSTGRES_PROXY: super().links[POSTGRES_PROXY], **self.external.links}

    def kafka_links(self, role: Role = "pipeline") -> dict[str, str]:
        """A way on which nothing may be broken goes by its address."""
        links: dict[str, str] = {}
        for who in ("driver", "executors") if role == "pipeline" else (role,):
            addresses = getattr(self.external.kafka, who).split(",")
            links |= zip(getattr(self.external.may_break, who) or addresses, addresses, strict=True)
        return links

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


def outside(here: Testbed, external: External) -> Outside:
    """The testbed ``here`` with the external Kafka in place of its own."""
    return Outside(**{field.name: getattr(here, field.name) for field in fields(Testbed)}, external=external)
