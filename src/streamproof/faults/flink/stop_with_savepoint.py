"""``stop_with_savepoint``: the job is stopped with a savepoint, and started again: from it, from what is damaged of it, or from nothing.

The model: an upgrade. A savepoint is made, its transactions are committed, the job ends, and is started again where the savepoint says.
``then`` says what becomes of it in between:

    restore   nothing: the job goes on from it
    damage    its ``_metadata`` is cut short: the job must refuse to start, and goes on once it is whole again
    forget    it is gone, and all checkpoints with it, as where a start is not told of one: the job begins anew -> DUPLICATED

Meanwhile what starts the processes of the job stands still (SIGSTOP), so that none begins too early.

Evidence: Flink completed the savepoint, and its job ended by itself; the next JobManager says by its REST interface what it was restored
from, or a start ended and its log says why; the job committed a batch afterwards.
Checked against: Flink 2.3 (``/jobs/:jobid/stop``; ``/jobs/:jobid/checkpoints`` tells ``latest.restored``; a JobManager in application mode
ends with its job).
"""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from streamproof.engines.flink import cluster, rest
from streamproof.evidence.folder import RunFolder
from streamproof.faults.ended import ended, ended_saying
from streamproof.faults.fault import DRIVER, EvidenceCheck, FaultError, Parameters, RunContext, Unconditional
from streamproof.faults.process import members
from streamproof.jobs.profile import JobProfile, Role, Trait
from streamproof.testbed import scratch
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import same_process, signal_recorded
from streamproof.verdict.anomaly import Anomaly

EVIDENCE_S = 180.0
SAVED_S = 60.0
REFUSED = ("java.io.EOFException",)
METADATA = "_metadata"
KEPT = "_metadata.kept"


class StopWithSavepointParameters(Parameters):
    then: Literal["restore", "damage", "forget"] = Field("restore", description="What becomes of the savepoint before the job starts again")


class StopWithSavepoint(Unconditional):
    name = "stop_with_savepoint"
    summary = "Stop a job on Flink with a savepoint, and start it again from that, from what is damaged of it, or from nothing"
    target = "the job on Flink"
    parameters_model: type[Parameters] = StopWithSavepointParameters
    of_traits = frozenset({Trait.SAVEPOINTS})
    occupies = frozenset({DRIVER})
    ends_connections = True

    def provokes(self, profile: JobProfile, parameters: dict[str, Any]) -> list[Anomaly]:
        return [Anomaly.DUPLICATED] if parameters.get("then") == "forget" else []

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """As an upgrade does it."""
        return {"then": "restore"}

    def batches(self, parameters: Any) -> int:
        return 4

    def aim(self, run: RunContext, parameters: StopWithSavepointParameters) -> dict[str, Any]:
        return {"start": run.start(), **members.chosen(run, Role.COORDINATOR), "starter": members.starter(run)}

    def inject(self, run: RunContext, parameters: StopWithSavepointParameters, target: dict[str, Any]) -> None:
        configured = rest.newest(scratch.folder(run.job.run.path))
        if configured is None:
            raise FaultError("the job has no JobManager yet")
        job = cluster.identity(run.job.name)
        kept = cluster.checkpoints(run.job.state / cluster.FOLDER) / job
        signal_recorded(target["starter"], signal.SIGSTOP)
        asked = rest.stop_with_savepoint(configured, job, kept)
        if asked is None:
            raise FaultError("Flink did not take the request to stop with a savepoint")
        target["savepoint"] = run.wait_for("the savepoint to be complete", lambda: rest.savepoint(configured, job, asked), SAVED_S)
        target["ended"] = run.eventually(lambda: not any(map(same_process, target["victims"])), SAVED_S)
        saved = Path(target["savepoint"].removeprefix("file:"))
        if parameters.then == "damage":
            shutil.copy2(saved / METADATA, saved / KEPT)
            with (saved / METADATA).open("r+b") as file:
                file.truncate(file.seek(0, 2) // 2)
        elif parameters.then == "forget":
            shutil.rmtree(kept)
        signal_recorded(target["starter"], signal.SIGCONT)

    def evidence(self, run: RunContext, parameters: StopWithSavepointParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        stopped = [
            EvidenceCheck("Flink completed the savepoint", bool(target["savepoint"]), Path(target["savepoint"]).name),
            EvidenceCheck("its job ended by itself", target["ended"], f"JobManager {target['member']}"),
        ]
        if parameters.then == "damage":
            return [*stopped, *self._refused(run, target), run.goes_on(EVIDENCE_S)]
        expected = target["savepoint"] if parameters.then == "restore" else ""
        run.eventually(lambda: _restored(run) == expected, EVIDENCE_S)
        told = _restored(run)
        said = {None: "it did not answer", "": "it was restored from nothing"}.get(told, f"it was restored from {Path(told or '').name}")
        return [
            *stopped,
            EvidenceCheck("the next JobManager says what it was restored from", told == expected, said),
            run.goes_on(EVIDENCE_S),
        ]

    def _refused(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        run.eventually(lambda: bool(ended(run.folder, target["start"])), EVIDENCE_S)
        starts = ended_saying(run.folder, target["start"], REFUSED)
        return [
            EvidenceCheck("a start of the job ended and its log says why", bool(starts), f"starts {starts or 'none'}"),
            *self.heal(run.testbed, run.folder, target),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """Wake what stands still, and put back what was cut short."""
        signal_recorded(target.get("starter", ()), signal.SIGCONT)
        saved = Path(target.get("savepoint", "").removeprefix("file:"))
        kept = saved / KEPT
        if not kept.is_file():
            return []
        kept.replace(saved / METADATA)
        return [EvidenceCheck("the savepoint is whole again", not kept.exists(), saved.name)]


def _restored(run: RunContext) -> str | None:
    """Where the running job was restored from: empty from nothing, None while nobody says."""
    configured = rest.newest(scratch.folder(run.job.run.path))
    return None if configured is None else rest.restored(configured, cluster.identity(run.job.name))


__all__ = ["StopWithSavepoint", "StopWithSavepointParameters"]
