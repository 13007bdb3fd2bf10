"""The executors of a job that runs on the testbed's Spark with a session of its own: found by what the driver's own UI says.

A driver of Spark serves its UI on port 4040, or on the next that is free of those behind it. Which one it is, and the application's id, is
asked once for each start, of those of the ports on which the start's processes listen; no other port is asked, for Py4J would take the
question for a command. A session without a UI, or with one elsewhere, has no executors here.

Checked against: Spark 4.1 (``/api/v1/applications`` of a driver names the one application that it runs; a worker starts an executor with
``--app-id`` on its command line).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

import psutil

from streamproof.testbed import hosts, spark
from streamproof.testbed.process import TestbedError

UI_PORTS = range(4040, 4040 + 17)  # spark.ui.port, and as many more as spark.port.maxRetries
ASK_S = 20.0
LOOK_S = 0.2


def running(processes: Iterable[psutil.Process]) -> tuple[str, str] | None:
    """The id of the application that one of these processes drives, and the address of its UI; None when none of them drives one."""
    ports = sorted(_listening(processes) & set(UI_PORTS))
    deadline = time.monotonic() + ASK_S
    while ports and time.monotonic() < deadline:
        for ui in (f"http://{hosts.here()}:{port}" for port in ports):
            with contextlib.suppress(TestbedError):  # it is busy, or has just begun
                if (application := spark.driver_application(ui)) is not None:
                    return application, ui
        time.sleep(LOOK_S)
    return None


def _listening(processes: Iterable[psutil.Process]) -> set[int]:
    ports: set[int] = set()
    for process in processes:
        try:
            ports |= {int(each.laddr.port) for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN and each.laddr}
        except psutil.Error:
            continue
    return ports


def executors(application: str) -> list[psutil.Process]:
    """The application's executors, each with what it has started."""
    return [each for executor in spark.executor_processes(application).values() for each in (executor, *_below(executor))]


def python_workers(application: str) -> list[psutil.Process]:
    found = []
    for executor in spark.executor_processes(application).values():
        try:
            found += spark.python_workers(executor)
        except psutil.NoSuchProcess:
            continue
    return found


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
