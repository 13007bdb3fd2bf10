"""``kill_process``: SIGKILL one process of a job that runs as several: a worker, or the coordinator that leads them.

The model: the machine under a TaskManager, a JobManager or an instance of an application is taken away; the others go on, and its place is
filled again. ``kill_driver`` kills all of them at once.

It is killed at a moment that the seed draws over the length of the last micro-batches, as with ``kill_driver``.

With ``gracefully`` it is asked to end by SIGTERM. With ``loses`` the disk of an instance is gone as well: what it kept there must come from
elsewhere.

Of two coordinators the one that leads is killed: the other stood by, and must take over.

Evidence: its processes are gone, as many as before play its role again, one leads that stood by (where one did), the engine's own interface
counts another one (where it has one), and the job committed a batch afterwards.
Checked against: Flink 2.3 (``/taskmanagers`` and ``/jobs/overview`` of its REST API).
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

from pydantic import Field

from streamproof.engines.command.engine import INSTANCE
from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, FaultError, Parameters, RunContext
from streamproof.faults.process import members
from streamproof.faults.process.kill_driver import drawn_delay_s, named
from streamproof.faults.process.members import MemberFault, MemberParameters
from streamproof.jobs.profile import JobProfile, Role
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import same_process


class KillProcessParameters(MemberParameters):
    loses: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="How the folder's name begins, below {state_folder}, that is lost with an instance; it ends with the instance's number",
    )

    gracefully: bool = Field(False, description="Ask it to end by SIGTERM, as a deployment does that is rolled out, instead of SIGKILL")


class KillProcess(MemberFault):
    name = "kill_process"
    summary = "SIGKILL one process of a job of several: a worker, or the coordinator"
    parameters_model: type[Parameters] = KillProcessParameters

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        super().check(profile, parameters)
        if parameters.get("loses") is not None and not profile.of_a_user:
            raise ValueError(f"{self.name}: loses: a job with {profile.name!r} has no {{state_folder}}; leave it out")

    def here_only(self, parameters: KillProcessParameters) -> frozenset[Role]:
        return frozenset({Role(parameters.role)} if parameters.gracefully or parameters.loses is not None else ())

    def aim(self, run: RunContext, parameters: KillProcessParameters) -> dict[str, Any]:
        return {"delay_s": drawn_delay_s(run), **members.chosen(run, Role(parameters.role))}

    def inject(self, run: RunContext, parameters: KillProcessParameters, target: dict[str, Any]) -> None:
        run.let_pass(target["delay_s"])
        lost = _lost(run, parameters, target)
        run.kill(target["victims"], signal.SIGTERM if parameters.gracefully else signal.SIGKILL)
        if lost is not None:
            target["lost"] = {"folder": str(lost), "files": sum(path.is_file() for path in lost.rglob("*"))}
            shutil.rmtree(lost, ignore_errors=True)

    def evidence(self, run: RunContext, parameters: KillProcessParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        role = Role(parameters.role)
        gone = run.eventually(lambda: run.gone(target["victims"]), members.AGAIN_S)
        again = run.eventually(lambda: members.others(run, role, target), members.AGAIN_S)
        engines_own = [members.taken_over(run, role, target), members.replaced(run, role, target)]
        return [
            EvidenceCheck("the processes of the member are gone", gone, named(target["victims"])),
            EvidenceCheck("its place was taken", again, f"{members.members(run, role)} in the role {role}"),
            *(check for check in engines_own if check is not None),
            *([_gone_with_it(target["lost"])] if "lost" in target else []),
            run.goes_on(members.EVIDENCE_S),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """Nothing to undo: the job starts it again."""
        return []


def _lost(run: RunContext, parameters: KillProcessParameters, target: dict[str, Any]) -> Path | None:
    """The folder that is lost with the victim. Raises FaultError when there is none."""
    if parameters.loses is None:
        return None
    victim = same_process(target["victims"][0])
    number = victim.environ().get(INSTANCE, "") if victim is not None else ""
    folder = run.job.state / f"{parameters.loses}{number}"
    if not folder.is_dir():
        raise FaultError(f"loses: expected the folder of an instance, {folder} is not there")
    return folder


def _gone_with_it(lost: dict[str, Any]) -> EvidenceCheck:
    return EvidenceCheck("its disk was lost with it", lost["files"] > 0, f"{lost['files']} files of {lost['folder']}")
