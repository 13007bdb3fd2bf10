"""One experiment at a time on one testbed: a lock file that names its holder.

A holder that is one process (the CLI) is gone when its process is. A holder made of many (Airflow's tasks) beats: its stages touch the
file, and a lock that was not touched for ``STALE_S`` is stale.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from streamproof import settings
from streamproof.exclusive import exclusive
from streamproof.testbed import embedded

STALE_S = 60.0
BEAT_S = 5.0
LOOK_S = 0.5


class TestbedBusy(Exception):
    """Another run holds the testbed. The message names it."""

    __test__ = False


@dataclass(frozen=True)
class Holder:
    """``pid`` is None for a holder that is not one process."""

    run: str
    folder: str
    pid: int | None
    created: float | None


def path() -> Path:
    return embedded.folder() / "run.lock"


def holder() -> Holder | None:
    try:
        return Holder(**json.loads(path().read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        return Holder("unknown", "", None, None)


def is_stale(held_by: Holder) -> bool:
    """Whether the holder can no longer give the lock back by itself."""
    if held_by.pid is not None:
        try:
            process = psutil.Process(held_by.pid)
            return abs(process.create_time() - (held_by.created or 0)) > 1 or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
    try:
        return time.time() - path().stat().st_mtime > STALE_S
    except FileNotFoundError:
        return False


def acquire(run: str, folder: Path, pid: int | None) -> None:
    """Take the lock. Repeating it for the same run is fine. Raises TestbedBusy naming the holder."""
    created = psutil.Process(pid).create_time() if pid is not None else None
    path().parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        held_by = holder()
        if held_by is not None and held_by.run != run:
            owner = f"process {held_by.pid}" if held_by.pid is not None else "Airflow's tasks"
            raise TestbedBusy(
                f"the testbed is held by run {held_by.run} ({held_by.folder}; {owner}), and one experiment runs on it at a time. "
                "Wait for it, or end it; `streamproof heal` cleans up after a killed one."
            ) from None
        return
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(Holder(run, str(folder), pid, created)), file)


def wait(run: str, timeout_s: float, say: Callable[[str], None]) -> None:
    """Wait until no other run holds the lock, or its holder cannot give it back any more. ``say`` is told whom it waits for.

    Raises TestbedBusy naming the holder after ``timeout_s``. The lock is not taken: whoever waits may still find it taken by a third.
    """
    deadline, announced = time.monotonic() + timeout_s, ""
    while (held_by := holder()) is not None and held_by.run != run and not is_stale(held_by):
        if time.monotonic() > deadline:
            raise TestbedBusy(
                f"the testbed was held by run {held_by.run} ({held_by.folder}) for {timeout_s:.0f} s; it was waited for that long"
            )
        if held_by.run != announced:
            announced = held_by.run
            say(f"the testbed is held by run {held_by.run}: waiting for it, {timeout_s:.0f} s at most")
        time.sleep(LOOK_S)


@contextlib.contextmanager
def turn(run: str, timeout_s: float, say: Callable[[str], None]) -> Iterator[None]:
    """Wait for the testbed, one after the other with everybody who waits here, and keep the turn until the body ends.

    Raises TestbedBusy after ``timeout_s``.
    """
    until = time.monotonic() + timeout_s

    def taken(pid: str) -> TestbedBusy:
        return TestbedBusy(f"process {pid} has used the testbed, or waited for it, for {timeout_s:.0f} s: wait for it, or end it")

    def waits(pid: str) -> None:
        say(f"process {pid} uses the testbed, or waits for it: waiting, {timeout_s:.0f} s at most")

    with exclusive(settings.home() / "turn.lock", timeout_s, taken, waits):
        wait(run, until - time.monotonic(), say)
        yield


def beat(run: str) -> None:
    """Say that ``run`` is still at work."""
    held_by = holder()
    if held_by is not None and held_by.run == run:
        with contextlib.suppress(FileNotFoundError):
            os.utime(path())


@contextlib.contextmanager
def beating(run: str) -> Iterator[None]:
    """Beat for ``run`` as long as the body goes on."""
    done = threading.Event()

    def go_on() -> None:
        while not done.wait(BEAT_S):
            beat(run)

    beat(run)
    beater = threading.Thread(target=go_on, name="beat", daemon=True)
    beater.start()
    try:
        yield
    finally:
        done.set()
        beater.join()


def release(run: str | None = None) -> None:
    """Give the lock back; with None whoever holds it."""
    held_by = holder()
    if held_by is not None and run in (None, held_by.run):
        path().unlink(missing_ok=True)
