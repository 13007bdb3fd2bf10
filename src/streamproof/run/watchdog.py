"""The watchdog: gives the testbed back when the runner of a run has vanished.

``python -m streamproof.run.watchdog RUN_FOLDER``, a process of its own that ``prepare`` starts for each run and that nobody waits for. It
looks at the testbed's lock. As long as the run holds the lock and its holder is not stale (see :mod:`streamproof.run.lock`), all is well,
however slow the holder is; once the lock is not the run's any more, its work is done and it ends. A holder that stays stale for
``GRACE_S`` has vanished: that goes into the journal, the run is ABORTED unless it was judged before, and the testbed is given back as
`streamproof heal` would.

So a runner that got a SIGKILL leaves toxics, drivers and open transactions for ``GRACE_S`` and a look, and then for as long as a restore
takes. A holder that is many processes (Airflow's tasks) is stale only after ``lock.STALE_S`` without a beat.

Beside that it watches the machine's clock (:mod:`streamproof.run.clock_watch`).

Concurrent restores are safe (``heal``, the next run's ``prepare``): the second is a no-op. The process carries
the testbed's mark, so that ``streamproof down`` ends it, and it ends by itself when there is no testbed any more.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

from streamproof import settings
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import RunnerVanished, StageStarted
from streamproof.run import clock_watch, lock
from streamproof.testbed.process import remembered, spawn

ROLE = "watchdog"
LOOK_S = 0.5
GRACE_S = 6.0  # longer than a holder's beat: one that slept with the whole machine gets the time to beat again
log = logging.getLogger("streamproof.run.watchdog")


def start(folder: RunFolder) -> None:
    """Start the run's watchdog, once."""
    old = remembered(ROLE, folder.logs)
    if old is None or not old.alive:
        spawn(
            ROLE, [sys.executable, "-m", "streamproof.run.watchdog", str(folder.path)], folder.logs, {"PYTHONPATH": settings.python_path()}
        )


def vanished(run: str) -> bool:
    """Wait until ``run`` holds the lock no more (False), or its holder has been stale for ``GRACE_S`` (True)."""
    stale_since: float | None = None
    while (held := lock.holder()) is not None and held.run == run:
        if not lock.is_stale(held):
            stale_since = None
        elif stale_since is None:
            stale_since = time.monotonic()
        elif time.monotonic() - stale_since >= GRACE_S:
            return True
        time.sleep(LOOK_S)
    return False


def give_back(folder: RunFolder) -> None:
    """What the runner would have done at its end."""
    from streamproof.run import stages  # heavy, and hardly ever needed

    last = folder.journal.last(StageStarted)
    reason = f"it was last seen at stage {last and last.stage}, with pid {last and last.pid}"
    folder.journal.append(RunnerVanished(reason=reason))
    log.warning("the runner of %s vanished: %s", folder.name, reason)
    try:
        stages.abort(folder, f"its runner vanished: {reason}")
    finally:
        lock.release(folder.name)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    folder = RunFolder.open(Path(sys.argv[1]))
    clock_watch.watch(folder)
    if vanished(folder.name):
        give_back(folder)


if __name__ == "__main__":
    main()
