"""Repair: bring a testbed back to where no experiment has touched it, from the journals alone.

Idempotent. What it does for a run: end its drivers, heal what was injected, disarm failpoints, let the strategy finish or undo open
transactions, delete the run's topics, give the lock back. What it does for the testbed: reset every proxy, start what died, and see that
it is in its steady state. A testbed that cannot be brought back there is built anew, and everything in it is gone.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamproof import settings
from streamproof.engines.lookup import engine_of, read_job
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.journal import EvidenceCheck, InjectionHealed, InjectionStarted, Restored, TestbedRebuilt, TestbedTaken
from streamproof.exclusive import exclusive
from streamproof.faults import FAULTS
from streamproof.jobs.job import Job
from streamproof.kafka.transactions import CoordinatorBusy, TransactionLost
from streamproof.run import lock, steady_state
from streamproof.run.supervisor import kill_drivers, kill_executors
from streamproof.sinks import outputs
from streamproof.testbed import chosen, credentials, embedded, scratch
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError

RESTORE_S = 120.0
log = logging.getLogger("streamproof.run.healing")


class RestoredElsewhere(TestbedError):
    """Another process has been restoring the run for too long."""


def give_back(folder: RunFolder) -> None:
    """Undo everything that ``folder``'s run did to the testbed; read back and journal what was done.

    Several may be called to it at once, by the tasks of a run that is stopped, or by the watchdog: one does it, the others wait.
    Raises RestoredElsewhere when the one does not come to its end within ``RESTORE_S``, TestbedError when the testbed cannot even be built
    anew.
    """
    with _alone(folder):
        held = lock.holder()
        if not left_behind(folder) and (held is None or held.run != folder.name):
            kill_drivers(folder)  # another restored it while this one waited: the testbed is not this run's any more
            return
        try:
            toxics = _unblock(folder)
            restore(folder, embedded.up(), toxics)
            credentials.forget(folder.name)
        except TestbedError as error:
            _rebuild(folder, str(error))
        finally:
            scratch.remove(folder.path)


def _unblock(folder: RunFolder) -> list[str]:
    """Take away what may keep the testbed from coming up: a cut link, a server that was paused. Returns the toxics among that.

    What cannot be healed yet, because it needs something that is down, is healed once all is up.
    """
    kill_drivers(folder)
    testbed = embedded.started()
    if testbed is None:
        return []
    testbed = chosen.of(folder, testbed)
    toxics = _reset_proxies(testbed)
    for event in _open_injections(folder):
        try:
            FAULTS[event.fault].heal(testbed, folder, event.target)
        except TestbedError as error:
            log.warning("%s cannot be healed yet: %s", event.injection, error)
    return toxics


def _reset_proxies(testbed: Testbed) -> list[str]:
    """Every toxic that was taken away; the proxies lead straight to their servers afterwards. A Toxiproxy that does not answer has neither
    toxics nor message links any more once it is started anew."""
    try:
        testbed.straighten()
        return [toxic for proxy in testbed.links for toxic in testbed.proxies.reset(proxy)]
    except TestbedError as error:
        log.warning("the proxies could not be reset: %s", error)
        return []


def _rebuild(folder: RunFolder, reason: str) -> None:
    log.error("the testbed cannot be brought back, it is built anew: %s", reason)
    killed = kill_drivers(folder) + kill_executors(folder)
    embedded.rebuild(log.info)
    folder.journal.append(TestbedRebuilt(reason=reason))
    folder.journal.append(Restored(killed=killed))
    lock.release(folder.name)


@contextlib.contextmanager
def _alone(folder: RunFolder) -> Iterator[None]:
    """One restorer of a run at a time; the kernel drops the lock when its holder dies."""

    def taken(holder: str) -> RestoredElsewhere:
        return RestoredElsewhere(
            f"run {folder.name} has been restored by another process (pid {holder}) for {RESTORE_S:.0f} s: end that one, then "
            "`streamproof heal`"
        )

    with exclusive(folder.path / "restore.lock", RESTORE_S, taken):
        yield


def restore(folder: RunFolder, testbed: Testbed, toxics: Sequence[str] = ()) -> dict[str, Any]:
    """Undo what ``folder``'s run did to a testbed that is up; journal and return what was done. ``toxics`` were taken away before.

    Raises TestbedError when the testbed is not in its steady state then.
    """
    testbed = chosen.of(folder, testbed)
    done: dict[str, Any] = {"killed": kill_drivers(folder) + kill_executors(folder)}
    todo = _open_injections(folder)
    for event in todo:
        heal_injection(testbed, folder, event.injection, event.fault, event.target)
    done["healed"] = [event.injection for event in todo]
    testbed.straighten()
    done["toxics"] = [*toxics, *(toxic for proxy in testbed.links for toxic in testbed.proxies.reset(proxy))]
    if (folder.path / "job.json").exists():
        # The testbed may have been taken down and started anew since, at other addresses.
        job = replace(read_job(folder), bootstrap=str(testbed.driver_kafka), postgres=testbed.pipeline_postgres)
        engine_of(job).disarm(job)
        done["recovered"] = _recover(job)
        cluster = Cluster(testbed.direct_kafka)
        cluster.delete_topics(engine_of(job).topics(job, testbed))
        if left_behind(folder) or job.input_topic.startswith(job.name):  # once: a topic with a fixed name may be another's by now
            cluster.delete_topics([job.input_topic])
        if left_behind(folder) or job.output_topic.startswith(job.name):
            outputs.of(job).delete(job, testbed)
    done["steady_state"] = [check.to_json() for check in steady_state.require(testbed)]
    folder.journal.append(Restored(**done))
    lock.release(folder.name)
    return done


def _recover(job: Job) -> dict[str, Any]:
    """Let the strategy finish or undo its open transactions. What it cannot finish any more is said, and holds nothing up: the run's
    topics go, and with them whatever was to become visible there."""
    try:
        return engine_of(job).recover(job)
    except (TransactionLost, CoordinatorBusy) as lost:
        log.error("%s", lost)
        return {"lost": str(lost)}


def heal_injection(testbed: Testbed, folder: RunFolder, injection: str, fault: str, target: dict[str, Any]) -> list[EvidenceCheck]:
    """Heal one injection, see that the testbed is in its steady state again unless another is still in place, and journal both."""
    checks = FAULTS[fault].heal(testbed, folder, target)
    if all(event.injection == injection for event in _open_injections(folder)):
        checks += steady_state.check(testbed, folder)
    folder.journal.append(InjectionHealed(injection=injection, checks=tuple(checks)))
    return checks


def _open_injections(folder: RunFolder) -> list[InjectionStarted]:
    """Each injection that was begun and not healed."""
    begun: dict[str, InjectionStarted] = {}
    for event in folder.journal.all(InjectionStarted, InjectionHealed):
        if isinstance(event, InjectionStarted):
            begun[event.injection] = event
        else:
            begun.pop(event.injection, None)
    return list(begun.values())


def left_behind(folder: RunFolder) -> bool:
    """Whether the run started to use the testbed and never gave it back."""
    return isinstance(folder.journal.last(TestbedTaken, Restored), TestbedTaken)


def unrestored() -> list[RunFolder]:
    """Runs that started to use the testbed and never gave it back."""
    folders = [RunFolder(path.parent) for path in sorted(settings.runs().glob("*/journal.jsonl"))]
    return [folder for folder in folders if left_behind(folder)]


def heal_all(*, spare: Path | None = None) -> list[str]:
    """Restore every run that was left behind, except ``spare``. Returns their names."""
    left = [folder for folder in unrestored() if folder.path != spare]
    for folder in left:
        log.warning("restoring what run %s left behind", folder.name)
        try:
            give_back(folder)
        except (TestbedError, EvidenceError, KeyError) as error:  # a damaged folder must not keep the others from being healed
            log.error("run %s could not be restored: %s. Look at %s, then delete it", folder.name, error, folder.path)
    testbed = embedded.started()
    if testbed is not None:
        _reset_proxies(testbed)
    held = lock.holder()
    if held is not None and (spare is None or held.run != spare.name):
        lock.release()
    return [folder.name for folder in left]
