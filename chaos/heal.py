"""Repair: bring a testbed back to where no experiment has touched it, from the journals alone.

Idempotent. What it does for a run: end its drivers, heal what was injected, disarm failpoints, let the strategy finish or undo open
transactions, delete the run's topics, give the lock back. What it does for the testbed: reset every proxy.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from chaos import lock, outputs, testbeds
from chaos.faults import FAULTS
from chaos.supervisor import kill_drivers, kill_executors
from delivery.folder import EvidenceError, RunFolder
from pipelines import failpoints, strategies
from pipelines.job import Job
from pipelines.transactions import TransactionLost
from testbed import embedded, settings
from testbed.embedded import Testbed
from testbed.kafka import Cluster
from testbed.process import TestbedError

RESTORE_S = 120.0
POLL_S = 0.1
log = logging.getLogger("chaos.heal")


def restore(folder: RunFolder, testbed: Testbed) -> dict[str, Any]:
    """Undo everything that ``folder``'s run did to ``testbed``; read back, journal and return what was done.

    Several may be called to it at once, by the tasks of a run that is stopped: one after the other. Raises TestbedError when one of them
    does not come to its end within ``RESTORE_S``.
    """
    with _alone(folder):
        return _restore(folder, testbed)


@contextlib.contextmanager
def _alone(folder: RunFolder) -> Iterator[None]:
    """One restorer of a run at a time; the kernel drops the lock when its holder dies."""
    deadline = time.monotonic() + RESTORE_S
    with (folder.path / "restore.lock").open("a+") as lock_file:
        while True:
            try:
                fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    lock_file.seek(0)
                    raise TestbedError(
                        f"run {folder.name} has been restored by another process (pid {lock_file.read() or 'unknown'}) for "
                        f"{RESTORE_S:.0f} s: end that one, then `streamproof heal`"
                    ) from error
                time.sleep(POLL_S)
        lock_file.truncate(0)
        lock_file.write(str(os.getpid()))
        lock_file.flush()
        yield


def _restore(folder: RunFolder, testbed: Testbed) -> dict[str, Any]:
    testbed = testbeds.of(folder, testbed)
    done: dict[str, Any] = {"killed": kill_drivers(folder) + kill_executors(folder)}
    done["healed"] = _heal_injections(folder, testbed)
    failpoints.disarm_all(folder)
    done["toxics"] = [toxic for proxy in testbed.links for toxic in testbed.proxies.reset(proxy)]
    if (folder.path / "job.json").exists():
        # The testbed may have been taken down and started anew since, at other addresses.
        job = replace(Job.read(folder), bootstrap=testbed.driver_kafka, postgres=testbed.pipeline_postgres)
        done["recovered"] = _recover(job)
        Cluster(testbed.direct_kafka).delete_topics([job.input_topic])
        outputs.of(job).delete(job, testbed)
    lock.release(folder.name)
    folder.journal.append("restored", **done)
    return done


def _recover(job: Job) -> dict[str, Any]:
    """Let the strategy finish or undo its open transactions. What it cannot finish any more is said, and holds nothing up: the run's
    topics go, and with them whatever was to become visible there."""
    try:
        return strategies.get(job.strategy).recover(job)
    except TransactionLost as lost:
        log.error("%s", lost)
        return {"lost": str(lost)}


def _heal_injections(folder: RunFolder, testbed: Testbed) -> list[str]:
    healed = {event["injection"] for event in folder.journal.events("injection_healed")}
    todo = [event for event in folder.journal.events("injection_started") if event["injection"] not in healed]
    for event in todo:
        claims = FAULTS[event["fault"]].heal(testbed, folder, event["target"])
        folder.journal.append("injection_healed", injection=event["injection"], claims=[claim.to_dict() for claim in claims])
    return [event["injection"] for event in todo]


def unrestored() -> list[RunFolder]:
    """Runs that started to use the testbed and never gave it back."""
    found = []
    for path in sorted(settings.runs().glob("*/journal.jsonl")):
        folder = RunFolder(path.parent)
        touched = folder.journal.last("testbed_taken")
        restored = folder.journal.last("restored")
        if touched is not None and (restored is None or restored["at"] < touched["at"]):
            found.append(folder)
    return found


def heal_all(testbed: Testbed, *, spare: Path | None = None) -> list[str]:
    """Restore every run that was left behind, except ``spare``. Returns their names."""
    left = [folder for folder in unrestored() if folder.path != spare]
    for folder in left:
        log.warning("restoring what run %s left behind", folder.name)
        try:
            restore(folder, testbed)
        except (TestbedError, EvidenceError, KeyError) as error:  # a damaged folder must not keep the others from being healed
            log.error("run %s could not be restored: %s. Look at %s, then delete it", folder.name, error, folder.path)
    for proxy in testbed.links:
        testbed.proxies.reset(proxy)
    held = lock.holder()
    if held is not None and (spare is None or held.run != spare.name):
        lock.release()
    return [folder.name for folder in left]


def current_or_none() -> Testbed | None:
    """The testbed, started where parts of it died; None when there is none to heal."""
    return embedded.up() if embedded.status() else None
