"""``lose_last_commit``: the newest file of the checkpoint's ``commits`` is deleted, and the driver killed, so that its batch runs again.

The model: a checkpoint on a file system that has acknowledged a write and lost it with the power; one that was restored from a copy which
is a moment too old; an object store that lists what is newest later. The next start finds ``offsets/N`` without ``commits/N`` and does
batch N again, although its output is there to the last record.

The driver is stopped (SIGSTOP) at a moment in which nothing is planned behind the last commit, the file is deleted, and the driver killed;
the supervisor starts it again. A strategy whose sink knows its batches, or whose tasks drop what is there already, shows nothing. One that
relies on the checkpoint alone must be seen writing the whole batch again -> DUPLICATED.

Evidence: the file is gone, the driver's processes are, the job was started again and committed a batch, and among what it committed then is
batch N once more.
Checked against: Spark 4.1 (``MicroBatchExecution.populateStartOffsets``: the last batch of ``offsets`` is run unless ``commits`` has it).
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from streamproof.engines.spark import checkpoints, failpoints
from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.process.hold import wake
from streamproof.faults.process.kill_driver import EVIDENCE_S, KillDriver
from streamproof.jobs.failpoint import Site
from streamproof.jobs.profile import JobProfile, Role, Trait
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee

STRIKE_S = 60.0
WATCH_S = 0.001


class LoseLastCommit(KillDriver):
    name = "lose_last_commit"
    summary = "Delete the checkpoint's newest commit while the driver is stopped, and SIGKILL it: the batch runs again"
    target = "the checkpoint, and the driver"
    parameters_model = Parameters
    of_traits = frozenset({Trait.RESUMES_FROM_CHECKPOINT})
    sites = frozenset[Site]()  # it is injected between two batches

    def provokes(self, profile: JobProfile, parameters: dict[str, Any]) -> list[Anomaly]:
        writes_again = profile.guarantee is Guarantee.AT_LEAST_ONCE and Trait.SKIPS_COMPLETE_OUTPUT not in profile.traits
        return [Anomaly.DUPLICATED] if writes_again else []

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        start, driver = run.driver()["start"], run.folder.read_json(run.folder.path / "driver.json")
        killed = run.recorded(Role.DRIVER)
        return {"role": self.target, "start": start, "killed": killed, "driver": driver, "checkpoint": str(run.job.checkpoint())}

    def inject(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> None:
        checkpoint, deadline = Path(target["checkpoint"]), time.monotonic() + STRIKE_S
        while time.monotonic() < deadline:
            if at_rest(checkpoint) is None:
                run.check_alive()
                time.sleep(WATCH_S)
                continue
            os.kill(int(target["driver"]["jvm_pid"]), signal.SIGSTOP)
            try:
                batch = at_rest(checkpoint)
                if batch is not None and self.ready(run):
                    target |= {"batch": batch, **self.damage(run, parameters, checkpoint, batch)}
                    failpoints.kill_driver(run.folder)
                    return
            finally:
                wake(target["driver"])
        raise FaultError(f"the job was not seen between two micro-batches within {STRIKE_S:.0f} s")

    def ready(self, run: RunContext) -> bool:
        """Whether this is the moment; asked while nothing of the job moves."""
        return True

    def damage(self, run: RunContext, parameters: Any, checkpoint: Path, batch: int) -> dict[str, Any]:
        """What is done while nothing of the job moves, after ``batch`` was committed. Returns what the target must hold of it."""
        return {"deleted": deleted(checkpoint / "commits", str(batch))}

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        batch, start = target["batch"], target["start"]

        def again() -> bool:
            return any(line["batch"] == batch and line["start"] > start for line in run.progress.lines())

        checks = super().evidence(run, parameters, target)
        replayed = run.eventually(again, EVIDENCE_S)
        return [
            EvidenceCheck("the newest commit was deleted", target["deleted"], f"commits/{batch}"),
            *checks,
            EvidenceCheck(f"batch {batch} was run again", replayed, f"by start {run.progress.last_start()}"),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """What was deleted comes back with the batch; a driver that was left stopped is woken."""
        wake(target["driver"])
        return []


class LosesMemory(LoseLastCommit):
    """What faults share after which a sink that remembers its batches by the query, or by what the query left, no longer knows them: it
    writes them again."""

    def provokes(self, profile: JobProfile, parameters: dict[str, Any]) -> list[Anomaly]:
        shown = [Anomaly.DUPLICATED] if Trait.KNOWS_THE_QUERY in profile.traits else super().provokes(profile, parameters)
        return sorted(set(shown) - profile.guarantee.forbidden)  # what breaks the promise makes the run FAILED

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Not for chance: no promise of a sink covers it that knows its batches so."""
        return None


def at_rest(checkpoint: Path) -> int | None:
    """The last batch that was committed while no other is planned, else None."""
    committed = checkpoints.last(checkpoint / "commits")
    return committed if committed == checkpoints.last(checkpoint / "offsets") else None


def deleted(folder: Path, name: str) -> bool:
    """Delete a file of a checkpoint and its checksum; whether it is gone."""
    for each in (name, f".{name}.crc"):
        (folder / each).unlink(missing_ok=True)
    return not (folder / name).exists()
