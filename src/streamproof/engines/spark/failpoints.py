"""Failpoints: the named steps of a commit protocol at which a run can be made to crash.

A strategy calls :func:`reach` as its protocol passes each step. Disarmed, that is one look for a file that is not there. Armed, the
failpoint fires once: whoever wins the rename of its file journals ``failpoint_fired`` (forced to disk) and then carries the action out.
The kill is a SIGKILL of real processes; nothing is unwound, no ``finally`` runs.

A failpoint can also *hold* the first process that reaches it: it waits there until it is released, so that something else can be broken
at just this step. A hold ends by itself after its bound, because the process that ordered it may be dead.

Some steps lie inside Spark, where no strategy's code runs. Such a step is *watched* from outside: its crash window is seen to be open,
the driver is stopped (SIGSTOP), the window is looked at again, and only if it is still open the driver is killed. See
:class:`streamproof.jobs.failpoint.Watch`.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import Any

import psutil

from streamproof.evidence.folder import RunFolder, write_atomically
from streamproof.evidence.journal import FailpointFired, FailpointHeld, FailpointReleased
from streamproof.jobs.failpoint import Action

HOLD = "hold"  # the order to wait; no Action, for it is no crash
HOLD_S = 20.0
HOLD_POLL_S = 0.005


class FailpointError(RuntimeError):
    """Thrown at an armed failpoint whose action is RAISE."""


def arm(
    folder: RunFolder, failpoint: str, action: Action, batch: int | None = None, attempt: int | None = None, after: str | None = None
) -> None:
    """Arm ``failpoint`` for one ``batch`` and ``attempt``, or for the next that reaches it.

    With ``after``, only once that failpoint has fired and the driver was started again: other tasks of the same moment do not count.
    """
    order = {"action": action, "batch": batch, "attempt": attempt, "after": after, "start": _driver_start(folder)}
    (folder.failpoints / f"{failpoint}.fired").unlink(missing_ok=True)
    write_atomically(folder.failpoints / f"{failpoint}.armed", json.dumps(order))


def hold(folder: RunFolder, failpoint: str, bound_s: float = HOLD_S) -> None:
    """Arm ``failpoint`` so that the next process that reaches it waits until :func:`disarm`, or for ``bound_s``. It journals
    ``failpoint_held`` first, and ``failpoint_released`` as it goes on."""
    order = {"action": HOLD, "batch": None, "attempt": None, "after": None, "bound_s": bound_s}
    write_atomically(folder.failpoints / f"{failpoint}.armed", json.dumps(order))


def holds(folder: RunFolder, failpoint: str) -> bool:
    """Whether somebody was held at ``failpoint`` and has not gone on since: it still waits there, or died there."""
    return (folder.failpoints / f"{failpoint}.held").exists()


def _driver_start(folder: RunFolder) -> int:
    """The number of the driver's last start, 0 before the first."""
    try:
        return int(json.loads((folder.path / "driver.json").read_text())["start"])
    except FileNotFoundError:
        return 0


def disarm(folder: RunFolder, failpoint: str) -> bool:
    """Disarm, and let go on who is held there; returns whether it was still armed."""
    path = folder.failpoints / f"{failpoint}.armed"
    was = path.exists()
    path.unlink(missing_ok=True)
    (folder.failpoints / f"{failpoint}.held").unlink(missing_ok=True)
    return was


def disarm_all(folder: RunFolder) -> None:
    for path in [*folder.failpoints.glob("*.armed"), *folder.failpoints.glob("*.held")]:
        path.unlink(missing_ok=True)


def armed(folder: RunFolder) -> list[str]:
    return sorted(path.stem for path in folder.failpoints.glob("*.armed"))


def reach(folder: RunFolder, failpoint: str, batch: int, *, process: int | None = None, **context: Any) -> None:
    """Say that the protocol reached ``failpoint`` with ``batch``. Returns unless the failpoint is armed for it.

    ``context`` goes into the journal; a task says its ``attempt`` there. ``process`` is who reached it, this process when absent.
    """
    path = folder.failpoints / f"{failpoint}.armed"
    try:
        order = json.loads(path.read_text())
    except FileNotFoundError:
        return
    if order["batch"] not in (None, batch) or order["attempt"] not in (None, context.get("attempt")):
        return
    if order["action"] == HOLD:
        _stand(folder, failpoint, batch, order["bound_s"], process, context)
        return
    if order["after"] is not None:
        crashed = (folder.failpoints / f"{order['after']}.fired").exists()
        if not crashed or _driver_start(folder) <= order["start"]:
            return
    fired = folder.failpoints / f"{failpoint}.fired"
    try:
        os.rename(path, fired)
    except FileNotFoundError:
        return
    who = psutil.Process(process)
    folder.journal.append(
        FailpointFired(failpoint=failpoint, batch=batch, action=order["action"], pid=who.pid, created=who.create_time(), details=context)
    )
    if order["action"] == Action.KILL_DRIVER:
        kill_driver(folder)
    if order["action"] in (Action.KILL_DRIVER, Action.KILL_WORKER, Action.KILL_EXECUTOR):
        with suppress(psutil.NoSuchProcess):  # it was the driver
            who.kill()
    raise FailpointError(f"failpoint {failpoint} fired in batch {batch}")


def _stand(folder: RunFolder, failpoint: str, batch: int, bound_s: float, process: int | None, context: dict[str, Any]) -> None:
    """Stand still at an armed hold, unless another was quicker."""
    held = folder.failpoints / f"{failpoint}.held"
    try:
        os.rename(folder.failpoints / f"{failpoint}.armed", held)
    except FileNotFoundError:
        return
    begun = time.monotonic()
    who = psutil.Process(process)
    folder.journal.append(FailpointHeld(failpoint=failpoint, batch=batch, pid=who.pid, created=who.create_time(), details=context))
    while held.exists() and time.monotonic() - begun < bound_s:
        time.sleep(HOLD_POLL_S)
    held.unlink(missing_ok=True)
    folder.journal.append(FailpointReleased(failpoint=failpoint, batch=batch, after_s=round(time.monotonic() - begun, 3)))


def kill_driver(folder: RunFolder) -> None:
    """SIGKILL the driver that ``driver.json`` describes: its JVM first (it does the work), then its Python."""
    for process in driver_processes(json.loads((folder.path / "driver.json").read_text())):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def driver_processes(driver: dict[str, Any]) -> list[psutil.Process]:
    """The processes of ``driver.json`` that still run, the JVM first. A later process with the same pid is not taken for one."""
    processes = []
    for role in ("jvm", "python"):
        try:
            process = psutil.Process(driver[f"{role}_pid"] or 0)
            if abs(process.create_time() - (driver[f"{role}_created"] or 0)) <= 1 and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
        except psutil.NoSuchProcess:
            continue
    return processes
