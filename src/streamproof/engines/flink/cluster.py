"""The processes of a Flink of one job: their configuration, their command lines.

Application mode: the JobManager runs the job itself, and ends with it. There is no script of Flink's in between: those compute the
memory of a JVM from the configuration, which is said here outright.

Checked against: Flink 2.3 (``StandaloneApplicationClusterEntryPoint``, ``TaskManagerRunner``, ``SqlDriver``; a TaskManager is refused
without explicit sizes of its memory; a JobManager without high availability knows nothing of a checkpoint that it is not told of).
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from streamproof import settings
from streamproof.engines.flink import high_availability
from streamproof.engines.flink.secured import LOOPBACK
from streamproof.engines.members import Member
from streamproof.evidence.folder import write_atomically
from streamproof.jobs.profile import Role

JOB_MANAGER = "org.apache.flink.container.entrypoint.StandaloneApplicationClusterEntryPoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
SQL_JOB = "org.apache.flink.table.runtime.application.SqlDriver"
PYTHON_JOB = "org.apache.flink.client.python.PythonDriver"
_LANG = ("java.lang", "java.lang.reflect", "java.text", "java.time")
_UTIL = ("java.util", "java.util.concurrent", "java.net", "java.io", "java.nio")
OPENED = (*_LANG, *_UTIL)
CONFIGURATION = "config.yaml"
FOLDER = "flink"
"""The folder of a Flink in the state of its job."""
BESIDE = "beside"
"""The role of all processes of another job, which runs at the same time and is not judged."""
STANDBY = "standby"
"""The folder, in the configuration of a start, that has the one of its second JobManager."""
JOB_MANAGERS = {"job-manager": ".", "job-manager-2": STANDBY}
"""The names of JobManagers, and where below the configuration of a start theirs is."""
LOGGING = """rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
appender.out.name = out
appender.out.type = CONSOLE
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss,SSS} %-5p %c{1} %m%n
logger.flink.name = org.apache.flink.runtime.executiongraph
logger.flink.level = INFO
"""


@dataclass(frozen=True)
class Ports:
    """On loopback, chosen for one start of a job."""

    rpc: int
    rest: int
    standby_rpc: int = 0
    standby_rest: int = 0
    zookeeper: int = 0

    @property
    def of_the_standby(self) -> Ports:
        return Ports(self.standby_rpc, self.standby_rest)


def configuration(state: Path, ports: Ports, slots: int, parallelism: int, own: Mapping[str, str]) -> dict[str, str]:
    """The settings of JobManager and TaskManagers, which keep what outlives them in ``state``; ``own`` replaces what is said here."""
    return {
        "jobmanager.rpc.address": LOOPBACK,
        "jobmanager.rpc.port": str(ports.rpc),
        "high-availability.jobmanager.port": str(ports.rpc),
        "jobmanager.bind-host": LOOPBACK,
        "rest.address": LOOPBACK,
        "rest.bind-address": LOOPBACK,
        "rest.port": str(ports.rest),
        "rest.bind-port": str(ports.rest),
        "web.submit.enable": "false",
        "web.cancel.enable": "false",
        "taskmanager.host": LOOPBACK,
        "taskmanager.bind-host": LOOPBACK,
        "taskmanager.numberOfTaskSlots": str(slots),
        "taskmanager.cpu.cores": str(slots),
        "taskmanager.memory.framework.heap.size": "64m",
        "taskmanager.memory.task.heap.size": "192m",
        "taskmanager.memory.framework.off-heap.size": "64m",
        "taskmanager.memory.task.off-heap.size": "0m",
        "taskmanager.memory.managed.size": "64m",
        "taskmanager.memory.network.min": "32m",
        "taskmanager.memory.network.max": "32m",
        "taskmanager.memory.jvm-metaspace.size": "192m",
        "taskmanager.memory.jvm-overhead.min": "64m",
        "taskmanager.memory.jvm-overhead.max": "64m",
        "parallelism.default": str(parallelism),
        "execution.checkpointing.interval": "500 ms",
        "execution.checkpointing.dir": checkpoints(state).as_uri(),
        "execution.checkpointing.num-retained": "200",  # the windows of a job are read from them
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": str(2**31 - 1),
        "restart-strategy.fixed-delay.delay": "1 s",
        "heartbeat.interval": "1000",
        "heartbeat.timeout": "6000",
        "io.tmp.dirs": str(state / "tmp"),
        **own,
    }


def write(folder: Path, settings_of: Mapping[str, str]) -> None:
    """The folder that Flink takes its configuration from."""
    write_atomically(folder / CONFIGURATION, yaml.safe_dump(dict(settings_of)), mode=0o600)
    write_atomically(folder / "log4j.properties", LOGGING)


@dataclass(frozen=True)
class Program:
    """What runs as the job's program, and where. ``folder`` holds the configuration, ``kept`` the checkpoints. ``main`` is the class and
    its arguments; ``flink_python`` the jar that it needs if it is Python's. It begins once the job whose checkpoints are in
    ``later_than`` has completed some; at once without."""

    folder: Path
    java_home: Path
    kept: Path
    job: str
    main: list[str]
    task_managers: int
    standby: bool = False
    flink_python: str = ""
    later_than: str = ""

    @property
    def jvm(self) -> list[str]:
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
        logging = f"-Dlog4j.configurationFile={self.folder / 'log4j.properties'}"
        login = high_availability.login(self.folder) if self.standby else []
        return [str(self.java_home / "bin" / "java"), *opened, logging, *login, "-XX:+UseSerialGC"]

    @property
    def environment(self) -> dict[str, str]:
        return {"FLINK_OPT_DIR": str(Path(self.flink_python).parent)} if self.flink_python else {}


def members(program: Program) -> list[Member]:
    """The processes of a Flink of one job: its JobManager, or two of them and the ZooKeeper between; its TaskManagers."""
    jars = ["-cp", f"{settings.cache() / 'jars' / 'flink'}/*"]
    told = {"FLINK_CONF_DIR": str(program.folder), **program.environment}
    task_manager = [*program.jvm, "-Xmx256m", "-XX:MaxDirectMemorySize=128m", "-XX:MaxMetaspaceSize=256m", *jars, TASK_MANAGER]
    workers = [
        Member(f"task-manager-{number}", Role.WORKERS, [*task_manager, "--configDir", str(program.folder)], told)
        for number in range(1, program.task_managers + 1)
    ]
    if not program.standby:
        restored = [sys.executable, "-m", "streamproof.engines.flink.restored", str(program.kept / identity(program.job))]
        said = json.dumps(
            {
                "before": _job_manager(program, jars, program.folder),
                "after": ["--job-classname", *program.main],
                "later_than": program.later_than,
            }
        )
        return [Member("job-manager", Role.COORDINATOR, [*restored, said], told), *workers]
    keeper = [*program.jvm, "-cp", jars[1], *high_availability.server(program.folder)]
    leaders = [
        Member(
            name,
            Role.COORDINATOR,
            [*_job_manager(program, jars, program.folder / below), "--job-classname", *program.main],
            {**told, "FLINK_CONF_DIR": str(program.folder / below)},
        )
        for name, below in JOB_MANAGERS.items()
    ]
    return [Member("zookeeper", "zookeeper", keeper, told), *leaders, *workers]


def _job_manager(program: Program, jars: list[str], folder: Path) -> list[str]:
    memory = ["-Xmx320m", "-XX:MaxMetaspaceSize=256m"]
    return [*program.jvm, *memory, *jars, JOB_MANAGER, "--configDir", str(folder), "--job-id", identity(program.job)]


def identity(job: str) -> str:
    """By which Flink knows the job in each of its starts."""
    return hashlib.md5(job.encode(), usedforsecurity=False).hexdigest()  # Flink's ids of jobs have 32 hexadecimal digits


def checkpoints(state: Path) -> Path:
    return state / "checkpoints"
