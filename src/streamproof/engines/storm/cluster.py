"""The processes of a Storm of one topology: their configuration, their command lines.

A start finds what the one before it left to ZooKeeper and Nimbus, the topology too: it is handed in once. There is one worker, so that its
parts need no network between them: Storm's own would listen on every interface.

Checked against: Storm 2.8 (``ZooKeeperServerMain`` of ``storm-shaded-deps``, ``Nimbus``, ``Supervisor``, ``Flux``; a Supervisor starts its
worker with the jars below ``storm.home`` and ``STORM_EXT_CLASSPATH``, and misses it after ``supervisor.monitor.frequency.secs``).
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from streamproof import settings
from streamproof.engines.members import Member
from streamproof.engines.storm import secured
from streamproof.evidence.folder import write_atomically
from streamproof.jobs.profile import Role
from streamproof.testbed import spark

JARS = "storm"
ZOOKEEPER = "org.apache.storm.shade.org.apache.zookeeper.server.ZooKeeperServerMain"
NIMBUS, SUPERVISOR = "org.apache.storm.daemon.nimbus.Nimbus", "org.apache.storm.daemon.supervisor.Supervisor"
WORKER, WRAPPER = "org.apache.storm.daemon.worker.Worker", "org.apache.storm.LogWriter"
FLUX = "org.apache.storm.flux.Flux"
LOOPBACK, NAME = "127.0.0.1", "localhost"  # its servers know themselves by the name
TRANSPORT = "streamproof.storm.Loopback"
LOGGING = """<Configuration status="error">
  <Appenders>
    <{appender}><PatternLayout pattern="%d{{HH:mm:ss,SSS}} %-5p %c{{1}} %m%n"/></{kind}>
  </Appenders>
  <Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""
APPENDERS = {"cluster.xml": 'Console name="out"', "worker.xml": 'File name="out" fileName="${sys:storm.log.dir}/worker.log"'}


@dataclass(frozen=True)
class Ports:
    """On loopback, chosen for one start. The worker has a number in place of a port: nobody listens on it."""

    zookeeper: int
    nimbus: int
    supervisor: int
    worker: int


def configuration(folder: Path, ports: Ports) -> dict[str, object]:
    """The settings of all its processes, which keep what is theirs in ``folder``."""
    return {
        "storm.local.dir": str(folder / "local"),
        "storm.log4j2.conf.dir": str(folder),
        "storm.local.hostname": NAME,
        "storm.zookeeper.servers": [LOOPBACK],
        "storm.zookeeper.port": ports.zookeeper,
        "storm.zookeeper.superACL": f"sasl:{secured.USER}",
        "storm.thrift.transport": TRANSPORT,
        "java.security.auth.login.config": str(folder / secured.FILE),
        "storm.messaging.transport": "org.apache.storm.messaging.local.Context",
        "nimbus.seeds": [NAME],
        "nimbus.thrift.port": ports.nimbus,
        "nimbus.childopts": "",
        "nimbus.monitor.freq.secs": 2,
        "supervisor.thrift.port": ports.supervisor,
        "supervisor.slots.ports": [ports.worker],
        "supervisor.monitor.frequency.secs": 1,
        "supervisor.worker.start.timeout.secs": 60,
        "supervisor.heartbeat.frequency.secs": 1,
        "task.heartbeat.frequency.secs": 1,
        "worker.childopts": " ".join([*secured.options(folder), "-Xmx256m", "-XX:+UseSerialGC"]),
    }


def prepare(folder: Path, ports: Ports) -> None:
    """Write what the processes take their settings from."""
    (folder / "conf").mkdir(exist_ok=True)
    write_atomically(folder / "conf" / "storm.yaml", yaml.safe_dump(configuration(folder, ports)))
    for name, appender in APPENDERS.items():
        write_atomically(folder / name, LOGGING.format(appender=appender, kind=appender.split()[0]))
    keeper = {"dataDir": folder / "zookeeper", "clientPort": ports.zookeeper, "clientPortAddress": LOOPBACK, "maxClientCnxns": 0}
    write_atomically(folder / "zoo.cfg", "".join(f"{name}={value}\n" for name, value in {**keeper, "tickTime": 2000}.items()))
    secured.write(folder)
    if not (folder / "lib-worker").is_symlink():
        (folder / "lib-worker").symlink_to(settings.cache() / "jars" / JARS)


def topology_jar(path: Path, resources: Iterable[Path], classes: Iterable[Path]) -> Path:
    """What is handed in with the topology: the files of its shell bolts, and folders of classes."""
    with zipfile.ZipFile(path, "w") as jar:
        for file in resources:
            jar.write(file, f"resources/{file.name}")
        for folder in classes:
            for file in sorted(folder.rglob("*.class")):
                jar.write(file, file.relative_to(folder).as_posix())
    return path


def members(java: Path, folder: Path, logs: Path, transport: Path, topology: Path, jar: Path) -> list[Member]:
    """``logs`` is where a worker writes its log, ``transport`` are the classes of ours that each process needs, ``topology`` the Flux
    file."""
    options = [f"-Dstorm.home={folder}", f"-Dstorm.log.dir={logs}", f"-Dlog4j.configurationFile={folder / 'cluster.xml'}"]
    login = secured.options(folder)
    more = [transport, *spark.jars("jdbc")]
    path = os.pathsep.join(map(str, [folder / "conf", *more, f"{settings.cache() / 'jars' / JARS}/*"]))
    jvm = [str(java), "-Xmx192m", "-XX:+UseSerialGC", *login, *options]
    keeper = [
        "-Dzookeeper.admin.enableServer=false",
        "-Dzookeeper.sessionRequireClientSASLAuth=true",
        "-Dzookeeper.authProvider.1=org.apache.storm.shade.org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    ]
    environment = {"STORM_CONF_DIR": str(folder / "conf"), "STORM_EXT_CLASSPATH": os.pathsep.join(map(str, more))}
    submit = [sys.executable, "-m", "streamproof.engines.storm.submit", str(folder / "submitted")]
    handed_in = [*jvm, f"-Dstorm.jar={jar}", "-cp", os.pathsep.join([path, str(jar)]), FLUX, "--remote", str(topology)]
    return [
        Member("zookeeper", "zookeeper", [*jvm, *keeper, "-cp", path, ZOOKEEPER, str(folder / "zoo.cfg")], environment),
        Member("nimbus", Role.COORDINATOR, [*jvm, "-cp", path, NIMBUS], environment),
        Member("supervisor", "supervisor", [*jvm, "-cp", path, SUPERVISOR], environment),
        Member("submit", "submit", [*submit, *handed_in], environment, ends=True),
    ]
