"""Repair: bring a testbed back to where no experiment has touched it, from the journals alone.

Idempotent. What it does for a run: end its drivers, heal what was injected, disarm failpoints, let the strategy finish or undo open
transactions, delete the run's topics, give the lock back. What it does for the testbed: reset every proxy.
"""

from __future__ import annotations

import fcntl
import logging
from pathlib import Path
from typing import Any

from chaos import lock, outputs
from chaos.faults import FAULTS
from chaos.supervisor import kill_drivers, kill_executors
from delivery.folder import EvidenceError, RunFolder
from pipelines import failpoints, strategies
from pipelines.job import Job
from pipelines.transactions import TransactionLost
from testbed import embedded, settings
from testbed.embedded import KAFKA_PROXY, Testbed
from testbed.kafka import Cluster
from testbed.process import TestbedError

log = logging.getLogger("chaos.heal")


def restore(folder: RunFolder, testbed: Testbed) -> dict[str, Any]:
    """Undo everything that ``folder``'s run did to ``testbed``; read back, journal and return what was done.

    Several may be called to it at once, by the tasks of a run that is stopped: one after the other.
    """
    with (folder.path / "restore.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        return _restore(folder, testbed)


def _restore(folder: RunFolder, testbed: Testbed) -> dict[str, Any]:
    done: dict[str, Any] = {"killed": kill_drivers(folder) + kill_executors(folder)}
    done["healed"] = _heal_injections(folder, testbed)
    for name in failpoints.armed(folder):
        failpoints.disarm(folder, name)
    done["toxics"] = testbed.proxies.reset(KAFKA_PROXY)
    if (folder.path / "job.json").exists():
        job = Job.read(folder)
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
    testbed.proxies.reset(KAFKA_PROXY)
    held = lock.holder()
    if held is not None and (spare is None or held.run != spare.name):
        lock.release()
    return [folder.name for folder in left]


def current_or_none() -> Testbed | None:
    """The testbed, started where parts of it died; None when there is none to heal."""
    return embedded.up() if embedded.status() else None
