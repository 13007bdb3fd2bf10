"""Spark standalone as a component: a master and two workers from the pyspark wheel.

Master, workers, drivers and executors know a secret that is drawn for each testbed; whoever does not know it is refused. The secret is in
a file that only its owner can read (:func:`secret_file`) and on no command line: master and workers read it from there, a driver is given
the file's name, and a worker hands the secret to its executors in their environment.

The workers have loopback addresses of their own (127.0.0.2, 127.0.0.3), as two machines would: Spark treats executors on one host
name as one host, and then never speculates between them. Executors are real JVMs that the workers start and replace.
"""

from __future__ import annotations

import functools
import html.parser
import http.client
import importlib.util
import json
import secrets
import shlex
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import psutil

from streamproof import extras, settings
from streamproof.evidence.folder import write_atomically
from streamproof.testbed import hosts, install, java, scratch, spark_sink
from streamproof.testbed.process import Handle, TestbedError, environment, listening, marked, running, spawn, wait_until

MASTER = "spark-master"
READY_S = 60.0
HTTP_TIMEOUT_S = 5.0
WORKERS = tuple(hosts.WORKERS)
RECOVERY = "spark-recovery"
WORKER_CORES = 2
WORKER_MEMORY_MB = 2048

# What Spark's own launcher passes to every JVM of Java 17 (org.apache.spark.launcher.JavaModuleOptions).
MODULE_FLAGS = [
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            "java.lang",
            "java.lang.invoke",
            "java.lang.reflect",
            "java.io",
            "java.net",
            "java.nio",
            "java.util",
            "java.util.concurrent",
            "java.util.concurrent.atomic",
            "jdk.internal.ref",
            "sun.nio.ch",
            "sun.nio.cs",
            "sun.security.action",
            "sun.util.calendar",
        )
    ),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
]


@dataclass(frozen=True)
class SparkPorts:
    master: int
    master_ui: int
    workers: dict[str, int]
    worker_uis: dict[str, int]


@functools.cache
def spark_home() -> Path:
    """Where the pyspark wheel keeps Spark. Raises MissingExtra when pyspark is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise extras.MissingExtra("pyspark is not installed. Run: pip install 'streamproof[spark]'")
    return Path(spec.origin).parent


def connector_class_path() -> str:
    """The Kafka connector's jars and our data source as a class path, for a job without the formats of tables."""
    return ":".join(map(str, connector_jars()))


def jars(name: str) -> list[Path]:
    """A set of jars of jars.lock."""
    return sorted((settings.cache() / "jars" / name).glob("*.jar"))


def connector_jars() -> list[Path]:
    sink = spark_sink.jar()
    return [*jars("spark"), *([sink] if sink is not None and sink.is_file() else [])]


LAKE = ("delta", "iceberg", "jdbc")
"""Sets of jars that are on the class path of every job of ours, so that one class-data archive holds for all of them."""


def class_path() -> str:
    """The jars of a job of ours as a class path."""
    return ":".join(map(str, job_jars()))


def job_jars() -> list[Path]:
    """The jars of a job of ours, in the order that the class-data archives were made for."""
    return [*connector_jars(), *chain.from_iterable(map(jars, LAKE))]


def secret_file(folder: Path) -> Path:
    """Spark's settings that hold the testbed's secret, as a properties file. Made by the first call, readable by its owner only.

    Checked against Spark 4.1: ``SecurityManager`` (standalone daemons and drivers take ``spark.authenticate.secret`` from their settings),
    ``CommandUtils`` (a worker passes it on in the environment and keeps it out of its executors' command lines).
    """
    path = folder / "spark-secret.conf"
    if not path.exists():
        write_atomically(path, f"spark.authenticate true\nspark.authenticate.secret {secrets.token_hex(32)}\n", mode=0o600)
    return path


def driver_environment(properties: Path | None) -> dict[str, str]:
    """The environment of a driver in Python that runs on a Spark whose secret is in a file of ``properties``: this process's own, with what
    Spark must know.

    What the caller has set for a Spark of their own (``SPARK_HOME``, ``SPARK_CONF_DIR``) is left out.
    """
    env = {key: value for key, value in environment().items() if key not in {"SPARK_HOME", "SPARK_CONF_DIR"}}
    return {
        **env,
        "JAVA_HOME": str(install.java_home()),
        "SPARK_LOCAL_IP": hosts.here(),
        "PYTHONPATH": settings.python_path(),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": submit_arguments(properties),
    }


def submit_arguments(properties: Path | None) -> str:
    """``PYSPARK_SUBMIT_ARGS`` of a driver that may use the Spark whose secret is in that file, None of one without."""
    return "pyspark-shell" if properties is None else f"--properties-file {shlex.quote(str(properties))} pyspark-shell"


def _command(main: str, *arguments: str, role: str) -> list[str]:
    flags = [*java.QUICK_START, *java.archive_flags(role), *MODULE_FLAGS, "-Xmx384m"]
    return [str(install.java_executable()), "-cp", f"{spark_home() / 'conf'}/:{spark_home() / 'jars'}/*", *flags, main, *arguments]


def _environment(host: str) -> dict[str, str]:
    java_home = str(install.java_home())
    # A daemon binds its web UI to SPARK_LOCAL_IP (else to every interface); a worker needs SPARK_SCALA_VERSION to launch executors.
    return {"SPARK_LOCAL_IP": host, "SPARK_HOME": str(spark_home()), "JAVA_HOME": java_home, "SPARK_SCALA_VERSION": "2.13"}


def start_master(folder: Path, ports: SparkPorts) -> Handle:
    if (old := running(MASTER, folder)) is not None:
        return old
    _forget_dead_workers(folder, ports)
    arguments = ["--host", hosts.of(MASTER), "--port", str(ports.master), "--webui-port", str(ports.master_ui)]
    arguments += ["--properties-file", str(secret_file(folder))]
    command = _command("org.apache.spark.deploy.master.Master", *arguments, role="spark-daemon")
    command[1:1] = [
        # The master gives up on an application after this many executors ended with none running; faults kill some on purpose.
        "-Dspark.deploy.maxExecutorRetries=60",
        # It would take jobs from anybody who reaches its port, and on a port of its own choice.
        "-Dspark.master.rest.enabled=false",
        "-Dspark.ui.killEnabled=false",
        "-Dspark.worker.timeout=20",
        # A master that is started again without its memory ends the executors of every application that runs.
        "-Dspark.deploy.recoveryMode=FILESYSTEM",
        f"-Dspark.deploy.recoveryDirectory={folder / RECOVERY}",
        "-Dspark.deploy.recoveryTimeout=10",
    ]
    handle = spawn(MASTER, command, folder, _environment(hosts.of(MASTER)))
    wait_until("spark-master: accept connections", lambda: listening(hosts.of(MASTER), ports.master_ui), READY_S, process=handle)
    return handle


def _forget_dead_workers(folder: Path, ports: SparkPorts) -> None:
    """What the master has kept of workers that are to be started anew. A new one at the same address, which may register before the
    master has recovered, is taken for the old one, and given up with it for good."""
    for role in WORKERS:
        host = hosts.of_worker(role)
        if running(f"spark-{role}", folder) is None:
            for kept in (folder / RECOVERY).glob(f"worker_*-{host}-{ports.workers[role]}"):
                kept.unlink(missing_ok=True)


def start_worker(folder: Path, ports: SparkPorts, role: str) -> Handle:
    name = f"spark-{role}"
    if (old := running(name, folder)) is not None:
        return old
    host = hosts.of_worker(role)
    arguments = ["--host", host, "--port", str(ports.workers[role]), "--webui-port", str(ports.worker_uis[role])]
    arguments += ["--cores", str(WORKER_CORES), "--memory", f"{WORKER_MEMORY_MB}M", "--work-dir", str(folder / "spark-work")]
    arguments += ["--properties-file", str(secret_file(folder))]
    scratch.make(folder)  # an executor that is killed leaves what it had put there
    command = _command(
        "org.apache.spark.deploy.worker.Worker", *arguments, f"spark://{hosts.of(MASTER)}:{ports.master}", role="spark-daemon"
    )
    command[1:1] = ["-Dspark.ui.killEnabled=false", "-Dspark.worker.cleanup.enabled=true", "-Dspark.worker.cleanup.appDataTtl=3600"]
    command[1:1] = ["-Dspark.worker.timeout=20"]  # as the master's: four times in it a worker says that it lives
    return spawn(name, command, folder, {**_environment(host), **scratch.variables(folder, {})})


def master_state(ui: int | str) -> dict[str, Any]:
    """What the master knows, as its web UI serves it: the testbed's at a port, or any at ``host:port``. Raises TestbedError when it does
    not answer."""
    state: dict[str, Any] = _json(f"http://{_address(ui)}/json/", "spark-master")
    return state


def _address(ui: int | str) -> str:
    return f"{hosts.of(MASTER)}:{ui}" if isinstance(ui, int) else ui


def registered(ports: SparkPorts) -> bool:
    """Whether every worker that runs is one that the master counts as alive, by the ids that the workers say they have.

    Counting is not enough: the master counts a worker that was killed until it notices.
    """
    try:
        alive = {worker for worker, state in worker_states(ports).items() if state == "ALIVE"}
        ids = {worker_id(ports, role) for role in ports.worker_uis}
    except TestbedError:
        return False
    return ids <= alive


def worker_states(ports: SparkPorts) -> dict[str, str]:
    """The workers that the master knows, dead ones included: worker id to state (ALIVE, DEAD, ...)."""
    return {worker["id"]: worker["state"] for worker in master_state(ports.master_ui)["workers"]}


def worker_id(ports: SparkPorts, role: str) -> str:
    """The id that a running worker says it has."""
    return str(_json(f"http://{hosts.of_worker(role)}:{ports.worker_uis[role]}/json/", f"spark-{role}")["id"])


def application_executors(ui: int | str, application: str) -> dict[str, str]:
    """The master's view of an application's executors, dead ones included: executor id to state (RUNNING, KILLED, EXITED, ...).

    The master serves it as a page only; its JSON (Spark 4.1, ``JsonProtocol.writeApplicationInfo``) leaves the executors out.
    """
    rows = _TableRows()
    rows.feed(_text(f"http://{_address(ui)}/app/?appId={application}", "spark-master"))
    header = next((row for row in rows.rows if "ExecutorID" in row and "State" in row), None)
    if header is None:
        raise TestbedError(f"spark-master knows no application {application}")
    number, state = header.index("ExecutorID"), header.index("State")
    return {row[number]: row[state] for row in rows.rows if len(row) > state and row[number].isdigit()}


class _TableRows(html.parser.HTMLParser):
    """The rows of every table of a page, each a list of its cells' texts."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in ("tr", "thead"):  # Spark puts no row into its heads
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            self._in_cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data.strip()


def driver_application(ui: str) -> str | None:
    """The id of the application whose driver serves this UI; None when it is another server's."""
    try:
        (application,) = json.loads(_text(f"{ui}/api/v1/applications", "the driver"))
        return str(application["id"])
    except (ValueError, KeyError, TypeError):
        return None


def driver_executors(ui: str, application: str) -> list[dict[str, Any]]:
    """The driver's own view of all its executors, dead ones included (Spark's monitoring REST API)."""
    executors: list[dict[str, Any]] = _json(f"{ui}/api/v1/applications/{application}/allexecutors", "the driver")
    return executors


def _json(url: str, who: str) -> Any:
    text = _text(url, who)
    try:
        return json.loads(text)
    except ValueError as error:
        raise TestbedError(f"{who} does not answer with JSON at {url}: {text[:200]!r}") from error


def _text(url: str, who: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=HTTP_TIMEOUT_S) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise TestbedError(f"{who} does not answer at {url}: {error}") from error


def executor_processes(application: str) -> dict[str, psutil.Process]:
    """The executor JVMs of an application on this testbed: executor id to process.

    A child that an executor forks has its command line until it executes another program; the executor is the older one.
    """
    oldest: dict[str, tuple[float, psutil.Process]] = {}
    for process in marked():
        try:
            words, created = process.cmdline(), process.create_time()
        except psutil.NoSuchProcess:
            continue
        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and application in words:
            executor = words[words.index("--executor-id") + 1]
            if executor not in oldest or created < oldest[executor][0]:
                oldest[executor] = created, process
    return {executor: process for executor, (_, process) in oldest.items()}


def python_workers(executor: psutil.Process) -> list[psutil.Process]:
    """The Python workers of an executor: what its Python daemon forked, each for one task at a time."""
    daemons = [child for child in executor.children() if any(word.endswith("daemon") for word in child.cmdline())]
    return [worker for daemon in daemons for worker in daemon.children()]
