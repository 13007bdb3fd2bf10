"""What a job's processes do while it runs: which there are, to which servers of the testbed they connect, and what goes round a proxy."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import psutil

from streamproof.jobs.engine import RUN_MARK
from streamproof.testbed import hosts
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import marked

LOOK_S = 0.2
END_S = 10.0
CONNECTING = frozenset({psutil.CONN_ESTABLISHED, psutil.CONN_SYN_SENT, psutil.CONN_CLOSE_WAIT})


@dataclass
class Seen:
    """``processes`` are the names of the job's processes by pid, ``proxies`` the names of the testbed's proxies that it connected to,
    ``around`` the servers of the testbed that it reached past their proxies, ``elsewhere`` addresses on other machines, ``elsewhere_now``
    those to which it was connected at the last look."""

    processes: dict[int, str] = field(default_factory=dict)
    proxies: set[str] = field(default_factory=set)
    around: set[str] = field(default_factory=set)
    elsewhere: set[str] = field(default_factory=set)
    elsewhere_now: set[str] = field(default_factory=set)


class Watch:
    """Looks at the processes of one run until it is left. A connection that lasts less than ``LOOK_S`` may be missed."""

    def __init__(self, run: str, testbed: Testbed) -> None:
        self.seen = Seen()
        self._run, self._roles = run, (*testbed.roles, hosts.here())
        self._proxies = {_port(address): name for name, address in testbed.links.items()}
        self._around = {port: server for server, ports in testbed.behind_proxies.items() for port in ports}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        self._thread.join(END_S)

    def _look_on(self) -> None:
        while not self._done.is_set():
            self.look()
            self._done.wait(LOOK_S)

    def look(self) -> None:
        """Look once. While this is entered it is done again and again."""
        self.seen.elsewhere_now = set()
        for process in marked(**{RUN_MARK: self._run}):
            try:
                name, connections = process.name(), process.net_connections("tcp")
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            self.seen.processes[process.pid] = name
            for connection in connections:
                if connection.raddr and connection.status in CONNECTING:
                    self._connected(connection.raddr.ip.removeprefix("::ffff:"), connection.raddr.port, connection.status)

    def _connected(self, host: str, port: int, status: str) -> None:
        if not hosts.is_ours(host, self._roles):
            self.seen.elsewhere.add(f"{host}:{port}")
            if status == psutil.CONN_ESTABLISHED:
                self.seen.elsewhere_now.add(f"{host}:{port}")
        elif port in self._proxies:
            self.seen.proxies.add(self._proxies[port])
        elif port in self._around:
            self.seen.around.add(f"{self._around[port]} at {host}:{port}")


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
