"""The engine ``flink``: each start is a Flink of its own, which goes on from the newest checkpoint of the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from streamproof.engines import members
from streamproof.engines.command.engine import MEMBERS, CommandEngine
from streamproof.engines.command.following import Source
from streamproof.engines.command.job import CommandJob
from streamproof.engines.command.placeholders import filled
from streamproof.engines.flink import cluster, rest, secured
from streamproof.engines.flink.checkpoints import CheckpointedOffsets
from streamproof.engines.flink.cluster import FOLDER, PYTHON_JOB, SQL_JOB, Ports
from streamproof.engines.flink.spec import PARALLELISM, FlinkJob, FlinkSpec
from streamproof.evidence.folder import write_atomically
from streamproof.jobs.job import Job
from streamproof.jobs.profile import Role
from streamproof.testbed import install, scratch
from streamproof.testbed.embedded import Testbed
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

    def source(self, job: CommandJob, testbed: Testbed) -> Source:
        if job.follows_output:
            return super().source(job, testbed)
        return CheckpointedOffsets(job, testbed.direct_kafka, cluster.checkpoints(job.state / FOLDER))

    def command(self, job: CommandJob, known: Mapping[str, str]) -> list[str]:
        assert isinstance(job, FlinkJob)
        folder = job.state / FOLDER
        folder.mkdir(exist_ok=True)
        with FreePorts() as free:
            ports = Ports(rpc=free.take(), rest=free.take())
        configured = scratch.folder(job.run.path) / f"{FOLDER}-{job.start}"
        configured.mkdir(mode=0o700, exist_ok=True)
        told = cluster.configuration(folder, ports, job.slots, PARALLELISM, {**secured.settings(configured), **job.config})
        cluster.write(configured, told)
        main = _main(job, folder, known)
        processes = cluster.members(
            configured, install.java_home(), cluster.checkpoints(folder), job.name, main, job.task_managers, job.flink_python
        )
        return members.command(job.state / MEMBERS, processes)


def _main(job: FlinkJob, folder: Path, known: Mapping[str, str]) -> list[str]:
    """The class that runs as the job's program, and its arguments."""
    if job.flink_python:
        return [PYTHON_JOB, "--pyClientExecutable", job.interpreter, "--pyExecutable", job.interpreter, "--python", job.script]
    script = folder / Path(job.script).name
    write_atomically(script, filled(Path(job.script).read_text(), {**known, **job.variables}))
    return [SQL_JOB, "--scriptUri", script.as_uri()]
