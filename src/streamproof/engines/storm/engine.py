"""The engine ``storm``: a Storm of its own for each run. A start of it finds what the one before left, as after a power cut.

Checked against: Storm 2.8 (a worker's process is the child of a ``LogWriter``, which the Supervisor started; the process of a shell bolt is
its child; the Supervisor keeps a folder for each worker that it has started).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import psutil

from streamproof.engines import members
from streamproof.engines.command.engine import MEMBERS, CommandEngine
from streamproof.engines.command.job import CommandJob
from streamproof.engines.command.placeholders import filled
from streamproof.engines.java import compiled
from streamproof.engines.storm import cluster
from streamproof.engines.storm.cluster import Ports
from streamproof.engines.storm.spec import StormJob, StormSpec
from streamproof.evidence.folder import write_atomically
from streamproof.jobs.engine import RUN_MARK
from streamproof.jobs.job import Job
from streamproof.jobs.profile import Role
from streamproof.testbed import install, scratch, spark
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import FreePorts, marked

FOLDER = "storm"


class StormEngine(CommandEngine):
    name = "storm"
    job_type = StormJob
    spec_type = StormSpec
    jars = StormSpec.jars

    def processes(self, job: Job, role: Role) -> list[psutil.Process]:
        """A worker is no member of ours: the Supervisor starts it."""
        if role not in (Role.WORKERS, Role.PYTHON_WORKERS):
            return super().processes(job, role)
        workers = [process for process in marked(**{RUN_MARK: job.run.name}) if _is_worker(process)]
        return workers if role is Role.WORKERS else [child for worker in workers for child in _children(worker)]

    def known(self, job: Job, role: Role, testbed: Testbed) -> frozenset[str]:
        """The workers that the Supervisor keeps, by the names that it gave them."""
        started = (scratch.folder(job.run.path) / FOLDER / "local" / "workers").glob("*")
        return frozenset(path.name for path in started) if role is Role.WORKERS else frozenset()

    def command(self, job: CommandJob, known: Mapping[str, str]) -> list[str]:
        assert isinstance(job, StormJob)
        folder = scratch.folder(job.run.path) / FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        with FreePorts() as free:
            ports = Ports(*(free.take() for _ in range(4)))
        cluster.prepare(folder, ports)
        jars = spark.jars(cluster.JARS)
        transport = compiled.classes_of([Path(__file__).with_name("Loopback.java")], jars, job.state / "transport")
        classes = [compiled.classes_of(map(Path, job.sources), jars, job.state / "classes")] if job.sources else []
        jar = cluster.topology_jar(folder / "topology.jar", map(Path, job.resources), classes)
        topology = folder / Path(job.topology).name
        write_atomically(topology, filled(Path(job.topology).read_text(), {**known, **job.variables}))
        found = cluster.members(install.java_executable(), folder, job.state / "logs", transport, topology, jar)
        return members.command(job.state / MEMBERS, found)


def _is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        return cluster.WORKER in words and cluster.WRAPPER not in words
    return False


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return process.children(recursive=True)
    return []
