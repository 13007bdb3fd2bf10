"""Whose link to Kafka a fault breaks. Driver and executors reach it through proxies of their own: one can be broken without the other.

That only one role was hit is shown twice: by the connections of its processes, which lead through its own proxies only, and by probes,
which fail on its link and not on the other's.
"""

from __future__ import annotations

from typing import Any

import psutil
from pydantic import Field

from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext
from streamproof.jobs import profile as jobs
from streamproof.jobs.profile import JobProfile
from streamproof.testbed.embedded import Role, Testbed

CONNECTED_S = 30.0


class OfRole(Parameters):
    role: Role = Field(
        "pipeline", description="Whose connections: those of the driver, of the executors, or of the pipeline, which is both"
    )


def ways(role: Role) -> frozenset[Role]:
    """Whose link to Kafka breaks with the role: the pipeline has two."""
    return frozenset({"driver", "executors"} if role == "pipeline" else {role})


def check(fault: str, profile: JobProfile, parameters: dict[str, Any]) -> None:
    """Raises ValueError when the job has no processes of that role."""
    if parameters.get("role") == "executors" and jobs.Role.EXECUTORS not in profile.roles:
        raise ValueError(f"{fault}: a job with {profile.name!r} has no executors: leave `role` out")
    if "role" in parameters and parameters["role"] != "pipeline" and jobs.Role.EXECUTORS in profile.roles and not profile.executors_link:
        raise ValueError(f"{fault}: the driver and the executors of {profile.name!r} reach Kafka by one proxy: leave `role` out")


def present(testbed: Testbed, target: dict[str, Any]) -> list[str]:
    """The broken proxies that are still there: a testbed that was made anew since may have others."""
    return [name for name in target["proxies"] if name in testbed.links]


def spared(testbed: Testbed, role: Role) -> dict[str, str]:
    """The ways to Kafka that are not the role's: name to address."""
    return {name: address for name, address in testbed.kafka_links().items() if name not in testbed.kafka_links(role)}


def connections(run: RunContext, role: Role) -> dict[str, int]:
    """How many connections lead through the role's proxies, by whose they are; waits until the role has one. Empty for both roles:
    there is no other to tell them from.

    Raises FaultError when the role makes no connection.
    """
    if role == "pipeline":
        return {}
    ports = {int(address.rpartition(":")[2]) for address in run.testbed.kafka_links(role).values()}

    def counted() -> dict[str, int] | None:
        counts = {part: sum(_open(process, ports) for process in processes) for part, processes in _processes(run).items()}
        return counts if counts[role] else None

    per_process: dict[str, int] = run.wait_for(f"a connection of the {role} to Kafka", counted, CONNECTED_S)
    return per_process


def checks(connections: dict[str, int]) -> list[EvidenceCheck]:
    """That one role has connections there, and the other has none."""
    if not connections:
        return []
    with_some = [part for part, count in connections.items() if count]
    detail = ", ".join(f"{part}: {count}" for part, count in connections.items())
    return [
        EvidenceCheck(f"only connections of the {' and the '.join(with_some)} lead through the broken proxy", len(with_some) == 1, detail)
    ]


def _processes(run: RunContext) -> dict[str, list[psutil.Process]]:
    run.driver()  # a start that is ready has all its processes
    return {role.value: run.engine.processes(run.job, role) for role in (jobs.Role.DRIVER, jobs.Role.EXECUTORS)}


def _open(process: psutil.Process, ports: set[int]) -> int:
    """How many connections the process has to these ports."""
    try:
        return sum(bool(connection.raddr) and connection.raddr.port in ports for connection in process.net_connections("tcp"))
    except psutil.NoSuchProcess:
        return 0
