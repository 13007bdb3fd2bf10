"""Two JobManagers of one job: a ZooKeeper between them, which decides who leads, and what tells who does.

The one that leads runs the job; the other stands by, and takes over when the session of the first with ZooKeeper has ended. Where the job
is then says ZooKeeper: it keeps a pointer to the newest checkpoint. It takes no session without the password of the start.

Checked against: Flink 2.3 (``high-availability.type: zookeeper``; its client logs in by the JAAS section ``Client``; a TaskManager is
connected to the RPC port of the JobManager that leads, and to no other), the ZooKeeper 3.7 that Flink brings, its server too (``Server``;
``sessionRequireClientSASLAuth``).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path

import psutil

from streamproof.engines.flink.secured import LOOPBACK
from streamproof.evidence.folder import write_atomically
from streamproof.testbed.process import connections_to

_SHADED = "org.apache.flink.shaded.zookeeper3.org.apache.zookeeper.server"
SERVER = f"{_SHADED}.ZooKeeperServerMain"
SESSION_MS = 6000
KEEPER = "zoo.cfg"
LOGIN = "jaas.conf"


def settings(kept: Path, job: str, port: int) -> dict[str, str]:
    """What JobManagers and TaskManagers are told of the ZooKeeper at ``port``; the pointers' targets outlive a start in ``kept``."""
    return {
        "high-availability.type": "zookeeper",
        "high-availability.zookeeper.quorum": f"{LOOPBACK}:{port}",
        "high-availability.zookeeper.client.acl": "creator",
        "high-availability.zookeeper.client.session-timeout": str(SESSION_MS),
        "high-availability.cluster-id": f"/{job}",
        "high-availability.storageDir": (kept / "high-availability").as_uri(),
    }


def write(folder: Path, kept: Path, port: int) -> None:
    """ZooKeeper's configuration and the password of this start, in ``folder``; what it knows outlives the start in ``kept``."""
    told = {"dataDir": kept / "zookeeper", "clientPort": port, "clientPortAddress": LOOPBACK, "maxClientCnxns": 0, "tickTime": 2000}
    write_atomically(folder / KEEPER, "".join(f"{name}={value}\n" for name, value in told.items()))
    password, module = secrets.token_urlsafe(24), f"{_SHADED}.auth.DigestLoginModule"
    sections = {
        "Server": f'{module} required user_flink="{password}";',
        "Client": f'{module} required username="flink" password="{password}";',
    }
    write_atomically(folder / LOGIN, "".join(f"{name} {{ {said} }};\n" for name, said in sections.items()), mode=0o600)


def login(folder: Path) -> list[str]:
    """Options of a Java that is to know the password."""
    return [f"-Djava.security.auth.login.config={folder / LOGIN}"]


def server(folder: Path) -> list[str]:
    """Options of ZooKeeper's Java, its class and its arguments."""
    options = [
        "-Dzookeeper.admin.enableServer=false",
        "-Dzookeeper.sessionRequireClientSASLAuth=true",
        f"-Dzookeeper.authProvider.1={_SHADED}.auth.SASLAuthenticationProvider",
    ]
    return ["-Xmx96m", *options, SERVER, str(folder / KEEPER)]


def leader(job_managers: Iterable[tuple[psutil.Process, int]], task_managers: Iterable[psutil.Process]) -> int | None:
    """The pid of that JobManager, of those with their RPC ports, which all TaskManagers are connected to; None while that is no single
    one."""
    workers = list(task_managers)
    found = [process.pid for process, port in job_managers if workers and all(connections_to(worker, port) for worker in workers)]
    return found[0] if len(found) == 1 else None
