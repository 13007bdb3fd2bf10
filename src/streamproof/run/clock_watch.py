"""Watches the machine's clock while a run goes on: whoever sets it moves the times of what is written.

The clock of the day is read beside the monotonic one, which nobody can set, in a thread of the run's watchdog. Where the first moved on by
more or less than the second it was set (``clock_stepped``). A clock that is corrected slowly never moves so much between two looks.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import ClockStepped

LOOK_S = 0.1
STEP_S = 0.02
ALIKE_S = 0.002


@dataclass(frozen=True)
class Reading:
    """Both clocks at one moment, in seconds."""

    day: float
    monotonic: float


def read() -> Reading:
    """Both clocks, read so close to each other that the difference of two readings tells a step."""
    while True:
        before = time.monotonic()
        day = time.time()
        after = time.monotonic()
        if after - before <= ALIKE_S:
            return Reading(day, (before + after) / 2)


def step_between(earlier: Reading, later: Reading) -> ClockStepped | None:
    """How the clock was set between two readings; None when it was not. What it may have shown twice reaches from the earliest time that it
    can have been set to until the latest that it can have shown before."""
    passed = later.monotonic - earlier.monotonic
    step = later.day - earlier.day - passed
    if abs(step) <= STEP_S:
        return None
    return ClockStepped(step_ms=round(step * 1000), since=_stamp(later.day - passed), until=_stamp(earlier.day + passed))


def watch(folder: RunFolder) -> None:
    """Journal each step of the clock from now on, in a thread that ends with its process."""
    threading.Thread(target=_follow, args=(folder, read()), name="clock", daemon=True).start()


def _follow(folder: RunFolder, reading: Reading) -> None:
    while True:
        time.sleep(LOOK_S)
        before, reading = reading, read()
        if (step := step_between(before, reading)) is not None:
            folder.journal.append(step)


def _stamp(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
