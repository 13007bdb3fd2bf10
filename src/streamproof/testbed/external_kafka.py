"""A Kafka that was not started here: where it is, and how a client gets in."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamproof.kafka import servers
from streamproof.kafka.servers import Access
from streamproof.testbed import credentials
from streamproof.testbed.credentials import Credentials

ONE_ADDRESS = r"[^\s:,/]+:\d{1,5}"
Addresses = Annotated[str, Field(pattern=rf"^{ONE_ADDRESS}(,{ONE_ADDRESS})*$", description="host:port, several separated by commas")]


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
    credentials: Credentials = Field(description="Where user name and password are: environment, file or airflow")


class Kafka(_Part):
    direct: Addresses = Field(description="host:port for the judges: the brokers themselves; commas between several")
    driver: Addresses = Field(description="The same for the job's driver: the proxies in front of them")
    executors: Addresses = Field(description="The same for its tasks")
    tls: Tls | None = Field(None, description="How the brokers are known; plaintext when absent")
    sasl: Sasl | None = Field(None, description="How a client logs in, over TLS")

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
