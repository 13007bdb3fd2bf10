"""The engine ``flink``: each start is a Flink of its own, which goes on from the newest checkpoint of the run."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import psutil

from streamproof.engines import members
from streamproof.engines.command.engine import MEMBERS, CommandEngine
from streamproof.engines.command.following import Source
from streamproof.engines.command.job import CommandJob
from streamproof.engines.command.placeholders import filled
from streamproof.engines.flink import cluster, high_availability, rest, secured
from streamproof.engines.flink.checkpoints import CheckpointedOffsets
from streamproof.engines.flink.cluster import BESIDE, FOLDER, PYTHON_JOB, SQL_JOB, STANDBY, Ports, Program
from streamproof.engines.flink.spec import PARALLELISM, FlinkJob, FlinkSpec
from streamproof.engines.members import Member
from streamproof.evidence.folder import write_atomically
from streamproof.jobs.engine import Launch
from streamproof.jobs.job import Job
from streamproof.jobs.profile import Role
from streamproof.testbed import install, scratch
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import FreePorts


class FlinkEngine(CommandEngine):
    name = "flink"
    job_type = FlinkJob
    spec_type = FlinkSpec
    jars = FlinkSpec.jars

    def known(self, job: Job, role: Role, testbed: Testbed) -> frozenset[str]:
        ask = {Role.WORKERS: rest.task_managers, Role.COORDINATOR: rest.job_starts}.get(role)
        asked = rest.newest(scratch.folder(job.run.path))
        return frozenset() if ask is None or asked is None else ask(asked)

    def leader(self, job: Job, role: Role) -> int | None:
        """The JobManager that leads, where another stands by."""
        assert isinstance(job, FlinkJob)
        configured = rest.newest(scratch.folder(job.run.path))
        if not job.standby or role is not Role.COORDINATOR or configured is None:
            return None
        ports = rest.rpc_ports(configured)
        found = [(process, ports[name]) for process in self.processes(job, role) if (name := _name(process)) in ports]
        return high_availability.leader(found, self.processes(job, Role.WORKERS))

    def source(self, job: CommandJob, testbed: Testbed) -> Source:
        if job.follows_output:
            return super().source(job, testbed)
        return CheckpointedOffsets(job, testbed.direct_kafka, cluster.checkpoints(job.state / FOLDER))

    def launch(self, job: Job, testbed: Testbed) -> Launch:
        if made := self.topics(job, testbed):
            Cluster(testbed.direct_kafka).create_topics(dict.fromkeys(made, PARALLELISM))
        return super().launch(job, testbed)

    def topics(self, job: Job, testbed: Testbed) -> list[str]:
        """Where the job beside it delivers."""
        assert isinstance(job, FlinkJob)
        return [_beside(job.output_topic)] if job.beside else []

    def command(self, job: CommandJob, known: Mapping[str, str]) -> list[str]:
        assert isinstance(job, FlinkJob)
        found = _members(job, known, FOLDER)
        if job.beside:
            elsewhere = {**known, **{name: _beside(known[name]) for name in ("output_topic", "group")}}
            other = replace(job, script=job.beside, variables=job.beside_variables, name=_beside(job.name), flink_python="", standby=False)
            beside = _members(other, elsewhere, BESIDE, str(cluster.checkpoints(job.state / FOLDER) / cluster.identity(job.name)))
            found += [replace(member, name=f"{BESIDE}-{member.name}", role=BESIDE) for member in beside]
        return members.command(job.state / MEMBERS, found)


def _beside(name: str) -> str:
    return f"{name}-{BESIDE}"


def _members(job: FlinkJob, known: Mapping[str, str], name: str, later_than: str = "") -> list[Member]:
    """The processes of a start; ``name`` begins the folders of what they keep, and of their configuration and keys."""
    folder, configured = job.state / name, scratch.folder(job.run.path) / f"{name}-{job.start}"
    folder.mkdir(exist_ok=True)
    with FreePorts() as free:
        ports = Ports(*(free.take() for _ in range(5 if job.standby else 2)))
    configured.mkdir(mode=0o700, exist_ok=True)
    own = secured.settings(configured) | job.config
    if job.standby:
        high_availability.write(configured, folder, ports.zookeeper)
        own = high_availability.settings(folder, job.name, ports.zookeeper) | own
        (configured / STANDBY).mkdir(mode=0o700, exist_ok=True)
        cluster.write(configured / STANDBY, cluster.configuration(folder, ports.of_the_standby, job.slots, PARALLELISM, own))
    cluster.write(configured, cluster.configuration(folder, ports, job.slots, PARALLELISM, own))
    main, checkpoints = _main(job, folder, known), cluster.checkpoints(folder)
    program = Program(configured, install.java_home(), checkpoints, job.name, main, job.task_managers, job.standby, job.flink_python)
    return cluster.members(replace(program, later_than=later_than))


def _name(process: psutil.Process) -> str:
    """By which its member is known; empty when it is gone."""
    with contextlib.suppress(psutil.Error):
        return process.environ().get(members.NAME_MARK, "")
    return ""


def _main(job: FlinkJob, folder: Path, known: Mapping[str, str]) -> list[str]:
    """The class that runs as the job's program, and its arguments."""
    if job.flink_python:
        return [PYTHON_JOB, "--pyClientExecutable", job.interpreter, "--pyExecutable", job.interpreter, "--python", job.script]
    script = folder / Path(job.script).name
    write_atomically(script, filled(Path(job.script).read_text(), {**known, **job.variables}))
    return [SQL_JOB, "--scriptUri", script.as_uri()]
