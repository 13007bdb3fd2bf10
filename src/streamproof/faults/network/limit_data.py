"""``limit_data``: each connection to Kafka is closed once it has carried so many bytes of answers.

The model: a proxy with a quota, a NAT table that is too small, a middlebox that gives long connections up. A client is cut in the middle
of an answer, again and again, and has to ask anew. A single answer that is longer than the limit never arrives: then the job makes no
progress until this is healed.

A Toxiproxy ``limit_data`` toxic on the downstream.

Evidence: the toxic reads back; a probe's connection is cut before it has carried more than the limit; and connections that the executors
had (the driver, of a job without executors), and which Kafka's clients keep for minutes, are gone.
Checked against: Toxiproxy 2.12 (``LimitDataToxic`` counts from when it is added to a connection) and Kafka's Java clients
(``connections.max.idle.ms`` is 9 minutes).
"""

from __future__ import annotations

import contextlib
from typing import Any

import psutil
from pydantic import Field

from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext
from streamproof.faults.network.toxic import DOWNSTREAM, Link, Toxic
from streamproof.jobs import profile as jobs
from streamproof.testbed.embedded import Role
from streamproof.testbed.process import TestbedError, connections_to, same_process

CUT_S = 90.0
STEP_BYTES = 1000
SPARE_BYTES = 100_000


class LimitDataParameters(Parameters):
    limit_bytes: int = Field(5_000, ge=2_000, le=10_000_000, description="How many bytes of answers a connection carries")
    cuts: int = Field(2, ge=1, le=100, description="How many of the job's connections are cut before it is healed, where it has so many")


class LimitData(Toxic):
    kind = "limit_data"
    streams = DOWNSTREAM
    name = "limit_data"
    summary = "Close each connection to Kafka once it has carried so many bytes of answers"
    target = "the link between the pipeline and Kafka"
    parameters_model = LimitDataParameters
    background = False

    def link(self, parameters: Any) -> str:
        return "kafka"

    def role(self, parameters: Any) -> Role:
        return "pipeline"

    def batches(self, parameters: LimitDataParameters) -> int:
        return 4

    def attributes(self, parameters: LimitDataParameters) -> dict[str, int]:
        return {"bytes": parameters.limit_bytes}

    def aim(self, run: RunContext, parameters: LimitDataParameters) -> dict[str, Any]:
        return {**super().aim(run, parameters), "cut": [], "of": f"the {_side(run)[1]}"}

    def inject(self, run: RunContext, parameters: LimitDataParameters, target: dict[str, Any]) -> None:
        target["cut"] = run.wait_for("connections of the job to Kafka", lambda: _of_job(run), CUT_S)
        super().inject(run, parameters, target)

    def measure(self, link: Link, parameters: LimitDataParameters) -> float:
        """How many bytes a probe's connection carries before it is cut; some more than the limit where it is not."""
        carried = 0
        try:
            with link.echo() as echo:
                while carried < parameters.limit_bytes + SPARE_BYTES:
                    echo(STEP_BYTES)
                    carried += STEP_BYTES
        except TestbedError:
            pass
        return carried

    def felt(self, parameters: LimitDataParameters, before: float, during: float) -> EvidenceCheck:
        return EvidenceCheck(
            "a probe's connection is cut within the limit",
            during <= parameters.limit_bytes < before,
            f"{before:.0f} bytes before, without being cut; {during:.0f} bytes during",
        )

    def took_effect(self, run: RunContext, parameters: LimitDataParameters, target: dict[str, Any], begin: int) -> EvidenceCheck:
        def cut() -> list[int]:
            """Those of the journaled connections that are gone although their process is not."""
            return [port for process in target["cut"] for port in _gone(run, process)]

        had = sum(len(process["ports"]) for process in target["cut"])
        wanted = min(parameters.cuts, had)
        enough = run.eventually(lambda: len(cut()) >= wanted, CUT_S)
        return EvidenceCheck(f"{wanted} connections of {target['of']} were cut", enough, f"{len(cut())} of {had}")


def _side(run: RunContext) -> tuple[jobs.Role, Role]:
    """Whose connections are looked at, and on which way to Kafka: those of the executors, where the job has some."""
    return (jobs.Role.EXECUTORS, "executors") if jobs.Role.EXECUTORS in run.profile.roles else (jobs.Role.DRIVER, "driver")


def _of_job(run: RunContext) -> list[dict[str, Any]]:
    """The processes of the job with the local ports of their connections to the proxy; empty until one has some."""
    listed = []
    for process in run.engine.processes(run.job, _side(run)[0]):
        with contextlib.suppress(psutil.Error):
            if ports := _connections(run, process):
                listed.append({"pid": process.pid, "created": process.create_time(), "ports": sorted(ports)})
    return listed


def _gone(run: RunContext, recorded: dict[str, Any]) -> list[int]:
    running = same_process(recorded)
    if running is None:
        return []
    return sorted(set(recorded["ports"]) - _connections(run, running))


def _connections(run: RunContext, process: psutil.Process) -> set[int]:
    """The local ports of a process's connections to Kafka's proxies."""
    proxies = run.testbed.kafka_links(_side(run)[1]).values()
    return {port for address in proxies for port in connections_to(process, int(address.rpartition(":")[2]))}
