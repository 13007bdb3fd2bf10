"""A Spark standalone cluster that was not started here: where its master is, and what a driver must know to use it.

Its workers start executors with the run's environment: they must see the run's folder, the project and this Python under the same paths. An
executor is found by its role where it is on this machine, and not one of the cluster's own processes is touched. A fault on executors is
refused where a worker is on another machine.

Checked against: Spark 4.1 (the master's JSON names the host of each worker; an executor has the variables of ``spark.executorEnv``).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from pydantic import BaseModel, ConfigDict, Field

from streamproof.testbed import credentials, spark
from streamproof.testbed.external_kafka import ONE_ADDRESS
from streamproof.testbed.process import TestbedError


class Spark(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    master: str = Field(pattern=rf"^spark://{ONE_ADDRESS}$", description="spark://host:port")
    ui: str = Field(pattern=rf"^{ONE_ADDRESS}$", description="host:port of the master's web page")
    properties: str | None = Field(
        None, description="Spark's settings for a driver, as the cluster's secret: a properties file that only its owner can read"
    )

    @property
    def properties_file(self) -> Path | None:
        """Raises TestbedError when others can read it, or it is not there."""
        return None if self.properties is None else credentials.owners_only(self.properties, "the external Spark: properties")

    def workers(self) -> dict[str, str]:
        """The workers that its master counts as alive, by their ids: the host of each. Raises TestbedError."""
        return {worker["id"]: str(worker["host"]) for worker in spark.master_state(self.ui)["workers"] if worker["state"] == "ALIVE"}

    def check(self, wants_executors: str | None) -> None:
        """Raises TestbedError when it has no worker, or ``wants_executors``, a fault, needs those that are on another machine."""
        _ = self.properties_file
        if (reason := refusal(self.ui, self.workers(), wants_executors)) is not None:
            raise TestbedError(reason)


def refusal(ui: str, workers: Mapping[str, str], wants_executors: str | None) -> str | None:
    """Why a run cannot use a cluster with these workers, by their ids the host of each; None when it can."""
    if not workers:
        return f"the external Spark: its master at {ui} counts no worker as alive"
    elsewhere = sorted({host for host in workers.values() if not _is_here(host)})
    if wants_executors is None or not elsewhere:
        return None
    return (
        f"{wants_executors}: it needs the executors on this machine, and the external Spark has workers on {', '.join(elsewhere)}, "
        "whose processes are not seen from here. Run streamproof where the workers are, or leave the fault out"
    )


def _is_here(host: str) -> bool:
    """Whether a host is this machine, by its addresses."""
    own = {address.address for interface in psutil.net_if_addrs().values() for address in interface}
    try:
        found: set[Any] = {each[4][0] for each in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(address in own or str(address).startswith("127.") for address in found)
