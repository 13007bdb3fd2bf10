"""A component's process: started in its own session, marked, remembered on disk, and certain to be stoppable.

Every process of a testbed carries ``STREAMPROOF_TESTBED=<home>`` in its environment, and children inherit it (a Spark worker's
executors, an executor's Python workers). So a testbed can be swept also when whoever started it was killed before it could write
anything down: see :func:`marked`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from streamproof import settings
from streamproof.evidence.folder import write_atomically

MARK = "STREAMPROOF_TESTBED"
KILL_S = 10.0
STOP_ROUNDS, STOP_GRACE_S = 10, 0.2
PORTS, FIXED_FROM = (10_000, 32_000), 9100
_EXITING = 0x4  # PF_EXITING of the kernel's include/linux/sched.h


class TestbedError(Exception):
    """The testbed, or a component of it, is not what it should be. The message names the component and says what to do."""

    __test__ = False


@dataclass(frozen=True)
class Handle:
    """A process that outlives whoever started it. ``created`` tells it from a later process with the same pid."""

    role: str
    pid: int
    created: float
    log: str

    def process(self) -> psutil.Process | None:
        """The running process, or None when it is gone (or a zombie, or being killed, or its pid went to another)."""
        process = self._present()
        return None if process is None or _is_dying(self.pid) else process

    def _present(self) -> psutil.Process | None:
        return same_process(asdict(self))

    @property
    def alive(self) -> bool:
        return self.process() is not None

    @property
    def gone(self) -> bool:
        """Whether nothing is left of the process. One that is being killed is not alive any more, but still holds its ports."""
        return self._present() is None


def process_record(process: psutil.Process) -> dict[str, Any]:
    """What :func:`same_process` finds the process again by: for a journal."""
    return {"pid": process.pid, "created": process.create_time()}


def same_process(recorded: Mapping[str, Any]) -> psutil.Process | None:
    """The process with that ``pid`` that was ``created`` then; None when it is gone (or a zombie, or its pid went to another)."""
    try:
        process = psutil.Process(recorded["pid"])
        same = abs(process.create_time() - recorded["created"]) <= 1
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def signal_recorded(records: Iterable[Mapping[str, Any]], number: signal.Signals) -> None:
    """Send a signal to those of the recorded processes that are still there."""
    for record in records:
        if (process := same_process(record)) is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def statuses(records: Iterable[Mapping[str, Any]]) -> set[str]:
    """How those of the recorded processes are that are still there, by psutil's names; empty when all are gone."""
    found: set[str] = set()
    for record in records:
        with contextlib.suppress(psutil.NoSuchProcess):
            if (process := same_process(record)) is not None:
                found.add(process.status())
    return found


def _is_dying(pid: int) -> bool:
    """Whether the kernel is about to end the process: SIGKILL is pending, or it is on its way out. Only Linux tells; else False."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        flags = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[6])
    except (OSError, IndexError, ValueError):
        return False
    pending = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd:", "ShdPnd:")))
    return bool(flags & _EXITING) or any(mask & 1 << signal.SIGKILL - 1 for mask in pending)


def free_port() -> int:
    """A TCP port of the loopback address that was free a moment ago."""
    with FreePorts() as ports:
        return ports.take()


class Ports(Protocol):
    def take(self) -> int:
        """A port that nobody else was given."""


class FixedPorts:
    """The same ports each time, counted up: of servers that have a machine, or a container, to themselves."""

    def __init__(self) -> None:
        self._next = FIXED_FROM

    def take(self) -> int:
        self._next += 1
        return self._next


class FreePorts:
    """Free TCP ports of the loopback address. While this is entered nobody else is given one of them, in no process on this machine; the
    server that it is meant for can listen on it all the same.

    They lie below the ports that the kernel gives to outgoing connections (32768 and up on Linux): one of those could take the port of a
    server that is down for a while, and it could not come back.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def __enter__(self) -> FreePorts:
        return self

    def __exit__(self, *_: object) -> None:
        for held in self._held:
            held.close()

    def take(self) -> int:
        while True:
            port, held = random.randint(*PORTS), socket.socket()
            try:
                held.bind(("", port))  # whichever of the loopback addresses has it: the workers of Spark have hosts of their own
            except OSError:
                held.close()
                continue
            # Linux lets another socket bind it when both have this option and neither listens: a server has it, this probe had not.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._held.append(held)
            return port


def spawn(role: str, command: list[str], folder: Path, more: Mapping[str, str] | None = None) -> Handle:
    """Start ``command`` as the process of ``role`` in a session of its own; its output goes to ``<folder>/<role>.log``.

    The handle is written to ``<folder>/<role>.pid`` before this returns.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{role}.log"
    env = {**environment(), **(more or {})}
    with log.open("ab") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, start_new_session=True, cwd=folder
        )
    handle = Handle(role, child.pid, psutil.Process(child.pid).create_time(), str(log))
    write_atomically(folder / f"{role}.pid", json.dumps(asdict(handle)))
    return handle


def environment() -> dict[str, str]:
    """This process's environment with the testbed's mark: for every process that is started for a testbed, however short it lives."""
    return {**settings.environment(), MARK: str(settings.home())}


@contextlib.contextmanager
def stopped(processes: Iterable[psutil.Process]) -> Iterator[None]:
    """None of these processes goes on while the body runs."""
    stopped: list[psutil.Process] = []
    try:
        for process in processes:
            process.suspend()
            stopped.append(process)
        yield
    finally:
        for process in stopped:
            process.resume()


def remembered(role: str, folder: Path) -> Handle | None:
    """The handle that :func:`spawn` wrote for ``role``, whether its process still lives or not."""
    try:
        return Handle(**json.loads((folder / f"{role}.pid").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def running(role: str, folder: Path) -> Handle | None:
    """The handle of ``role`` if its process runs. One that is being killed is waited for: whoever takes its place needs its ports."""
    handle = remembered(role, folder)
    if handle is None or handle.alive:
        return handle
    wait_until(f"{role}: end after it was killed (pid {handle.pid})", lambda: handle.gone, KILL_S)
    return None


def wait_until(what: str, condition: Callable[[], bool], timeout_s: float, *, process: Handle | None = None, poll_s: float = 0.05) -> None:
    """Wait until ``condition`` holds. Raises TestbedError naming ``what`` after ``timeout_s``, or at once when ``process`` died."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if process is not None and not process.alive:
            raise TestbedError(
                f"{what}: the process ended while it was waited for. Its log, {process.log}, ends with:\n{tail(process.log)}"
            )
        if time.monotonic() > deadline:
            log = f" Its log, {process.log}, ends with:\n{tail(process.log)}" if process else ""
            raise TestbedError(f"{what}: not within {timeout_s:.0f} s.{log}")
        time.sleep(poll_s)


def tail(log: str | Path, lines: int = 15) -> str:
    try:
        return "\n".join(Path(log).read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return "(no log)"


def stop(processes: Iterable[psutil.Process], *, grace_s: float = 5.0) -> list[psutil.Process]:
    """Ask the processes to end, then make them. Returns those that survived even SIGKILL (there should be none)."""
    targets = list(processes)
    for process in targets:
        _signal(process, signal.SIGCONT)
        _signal(process, signal.SIGTERM)
    alive = _wait_for_end(targets, grace_s)
    for process in alive:
        _signal(process, signal.SIGKILL)
    return _wait_for_end(alive, KILL_S)


def stop_all(find: Callable[[], Collection[psutil.Process]], whose: str) -> list[psutil.Process]:
    """Stop what ``find`` finds, and what that starts while it is stopped, until nothing is found. Returns what was stopped. Raises
    TestbedError naming ``whose`` processes keep appearing."""
    ended: list[psutil.Process] = []
    for _ in range(STOP_ROUNDS):
        if not (processes := find()):
            return ended
        stop(processes, grace_s=STOP_GRACE_S)
        ended += processes
    if left := find():
        raise TestbedError(f"{whose}: new processes keep appearing: {sorted(process.pid for process in left)}")
    return ended


def _wait_for_end(processes: list[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Those that still run after ``timeout_s``. A zombie has ended: when it is reaped is up to its parent."""
    deadline = time.monotonic() + timeout_s
    while True:
        alive = [process for process in processes if runs(process)]
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(0.01)


def runs(process: psutil.Process) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def command_line(process: psutil.Process) -> list[str]:
    """The words of its command line; none once it has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # or a zombie
        return []


def marked(**environment: str) -> list[psutil.Process]:
    """Every process of this testbed, found by its mark; narrowed to those whose environment also holds ``environment``.

    A process that wrote its title over its environment, as PostgreSQL's backends do, is found by its working folder instead.
    """
    wanted = {MARK: str(settings.home()), **environment}
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    processes = []
    testbed = settings.home() / "testbed"
    for process in psutil.process_iter():
        try:
            if process.pid in own or process.status() == psutil.STATUS_ZOMBIE:
                continue
            env = process.environ()
            if not env and not environment and Path(process.cwd()).is_relative_to(testbed):
                processes.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
        if all(env.get(key) == value for key, value in wanted.items()):
            processes.append(process)
    return processes


def connections_to(process: psutil.Process, port: int) -> set[int]:
    """The local ports of the process's TCP connections to ``port``; none when it is gone."""
    try:
        connections = process.net_connections("tcp")
    except psutil.NoSuchProcess:
        return set()
    established = [connection for connection in connections if connection.status == psutil.CONN_ESTABLISHED]
    return {connection.laddr.port for connection in established if connection.raddr and connection.raddr.port == port}


def listening(host: str, port: int) -> bool:
    """Whether something accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False
