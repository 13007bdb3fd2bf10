"""Failpoints: the named steps of a commit protocol at which a run can be made to crash.

A strategy calls :func:`reach` as its protocol passes each step. Disarmed, that is one look for a file that is not there. Armed, the
failpoint fires once: whoever wins the rename of its file journals ``failpoint_fired`` (forced to disk) and then carries the action out.
The kill is a SIGKILL of real processes; nothing is unwound, no ``finally`` runs.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from delivery.anomaly import Anomaly
from delivery.folder import RunFolder, write_atomically


class Action(StrEnum):
    """KILL_DRIVER ends the driver's JVM, its Python and this process; RAISE throws :class:`FailpointError` at the step."""

    KILL_DRIVER = "kill_driver"
    RAISE = "raise"


class FailpointError(RuntimeError):
    """Thrown at an armed failpoint whose action is RAISE."""


@dataclass(frozen=True)
class Failpoint:
    """A step of a protocol. ``at`` says whether the driver or a task passes it, ``window`` what a crash there does in words, and
    ``provokes`` the anomalies that a crash there must show."""

    name: str
    at: str
    window: str
    provokes: frozenset[Anomaly] = frozenset()


def arm(folder: RunFolder, failpoint: str, action: Action, batch: int | None = None) -> None:
    """Arm ``failpoint``, for one ``batch`` or for the next that reaches it."""
    write_atomically(folder.failpoints / f"{failpoint}.armed", json.dumps({"action": action, "batch": batch}))


def disarm(folder: RunFolder, failpoint: str) -> bool:
    """Disarm; returns whether it was still armed."""
    path = folder.failpoints / f"{failpoint}.armed"
    was = path.exists()
    path.unlink(missing_ok=True)
    return was


def armed(folder: RunFolder) -> list[str]:
    return sorted(path.stem for path in folder.failpoints.glob("*.armed"))


def reach(folder: RunFolder, failpoint: str, batch: int, **context: Any) -> None:
    """Say that the protocol reached ``failpoint`` with ``batch``. Returns unless the failpoint is armed for it."""
    path = folder.failpoints / f"{failpoint}.armed"
    try:
        order = json.loads(path.read_text())
    except FileNotFoundError:
        return
    if order["batch"] is not None and order["batch"] != batch:
        return
    try:
        os.rename(path, folder.failpoints / f"{failpoint}.fired")
    except FileNotFoundError:
        return
    folder.journal.append("failpoint_fired", failpoint=failpoint, batch=batch, action=order["action"], pid=os.getpid(), **context)
    if order["action"] == Action.KILL_DRIVER:
        _kill_driver(folder)
    raise FailpointError(f"failpoint {failpoint} fired in batch {batch}")


def _kill_driver(folder: RunFolder) -> None:
    """SIGKILL the driver's JVM first (it does the work), then its Python, then whichever process this is."""
    driver = json.loads((folder.path / "driver.json").read_text())
    for pid in (driver["jvm_pid"], driver["python_pid"], os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
