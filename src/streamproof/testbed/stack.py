"""The testbed as a stack of containers: in each a server, and a supervisor that starts it.

A server that a fault has ended stays down until somebody asks for it: :func:`ask` leaves a request in the testbed's folder, which all
containers share, and the supervisor of that role (:func:`serve`) starts the server and says how it went. A container that was killed as a
whole is for the container engine to start.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from streamproof.evidence.folder import write_atomically
from streamproof.testbed import hosts
from streamproof.testbed.process import TestbedError, remembered, stop, wait_until

ANSWER_S = 120.0
POLL_S, ALIVE_S = 0.1, 2.0
HEALTHY = Path("/tmp/streamproof-healthy")
"""Touched again and again while the container's server runs, for the health check."""


def ask(role: str, folder: Path) -> None:
    """Have the server of that role started, where it does not run, and wait until it is ready. Raises TestbedError when it does not
    become so, or when its supervisor does not answer."""
    request = uuid.uuid4().hex
    write_atomically(_request(role, folder), json.dumps({"id": request}))

    def answered() -> bool:
        answer = _read(_answer(role, folder))
        if answer.get("id") == request and answer.get("error"):
            raise TestbedError(str(answer["error"]))
        return answer.get("id") == request

    try:
        wait_until(f"{role}: its container to answer", answered, ANSWER_S)
    except TestbedError as error:
        if "to answer" in str(error):
            raise TestbedError(f"{error} Does it run? `docker compose ps {role}`, `docker compose start {role}`") from error
        raise


def serve(role: str, folder: Path, start: Callable[[], object]) -> NoReturn:
    """Start the server, and again when somebody asks for it, until this process is ended; the server then ends too."""
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: _leave(role, folder))
    error, asked, looked = _start(start), "", 0.0
    print(error or f"{role} is ready", flush=True)
    while True:
        request = str(_read(_request(role, folder)).get("id", ""))
        if request != asked:
            if asked or remembered(role, folder) is None or not _runs(role, folder):
                error = _start(start)
                print(error or f"{role} was asked for, and is ready", flush=True)
            write_atomically(_answer(role, folder), json.dumps({"id": request, "error": error}))
            asked = request
        if time.monotonic() - looked > ALIVE_S:
            looked = time.monotonic()
            _reap()
            if _runs(role, folder):
                HEALTHY.touch()
            else:
                HEALTHY.unlink(missing_ok=True)
        time.sleep(POLL_S)


def refuse(what: str) -> None:
    """Where the testbed is a stack. Raises TestbedError that says what it cannot be."""
    if hosts.stack():
        raise TestbedError(f"{what}: a stack of containers is made by `docker compose up`, and ended by `docker compose down`")


def _start(start: Callable[[], object]) -> str | None:
    try:
        start()
    except (TestbedError, OSError, subprocess.SubprocessError) as error:  # it is asked again, and says so
        return f"{type(error).__name__}: {error}" if not isinstance(error, TestbedError) else str(error)
    return None


def _leave(role: str, folder: Path) -> NoReturn:
    handle = remembered(role, folder)
    process = handle.process() if handle is not None else None
    if process is not None:
        stop([process])
    raise SystemExit(0)


def _runs(role: str, folder: Path) -> bool:
    handle = remembered(role, folder)
    return handle is not None and handle.alive


def _reap() -> None:
    """Servers are children of the supervisor: one that has ended is there until its parent has asked."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _request(role: str, folder: Path) -> Path:
    return folder / "asked" / f"{role}.json"


def _answer(role: str, folder: Path) -> Path:
    return folder / "asked" / f"{role}.answer.json"


def _read(path: Path) -> dict[str, str]:
    try:
        read: dict[str, str] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return read
