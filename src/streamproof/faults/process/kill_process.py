"""``kill_process``: SIGKILL one process of a job that runs as several: a worker, or the coordinator that leads them.

The model: the machine under a TaskManager, a JobManager or an instance of an application is taken away; the others go on, and its place is
filled again. ``kill_driver`` kills all of them at once.

It is killed at a moment that the seed draws over the length of the last micro-batches, as with ``kill_driver``.

Evidence: its processes are gone, as many as before play its role again, the engine's own interface counts another one (where it has one),
and the job committed a batch afterwards.
Checked against: Flink 2.3 (``/taskmanagers`` and ``/jobs/overview`` of its REST API).
"""

from __future__ import annotations

import signal
from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.faults.fault import EvidenceCheck, Parameters, RunContext
from streamproof.faults.process import members
from streamproof.faults.process.kill_driver import drawn_delay_s
from streamproof.faults.process.members import MemberFault, MemberParameters
from streamproof.jobs.profile import Role
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import signal_recorded


class KillProcess(MemberFault):
    name = "kill_process"
    summary = "SIGKILL one process of a job of several: a worker, or the coordinator"
    parameters_model: type[Parameters] = MemberParameters

    def aim(self, run: RunContext, parameters: MemberParameters) -> dict[str, Any]:
        delay_s, role = drawn_delay_s(run), Role(parameters.role)
        return {
            "role": role.value,
            "delay_s": delay_s,
            "batches": run.progress.batches(),
            "members": members.members(run, role),
            **members.chosen(run, role),
        }

    def inject(self, run: RunContext, parameters: MemberParameters, target: dict[str, Any]) -> None:
        run.let_pass(target["delay_s"])
        signal_recorded(target["victims"], signal.SIGKILL)
        target["batches"] = run.progress.batches()

    def evidence(self, run: RunContext, parameters: MemberParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        role = Role(parameters.role)
        gone = run.eventually(lambda: members.gone(target), members.AGAIN_S)
        again = run.eventually(lambda: members.others(run, role, target), members.AGAIN_S)
        pids = ", ".join(str(victim["pid"]) for victim in target["victims"])
        replaced = members.replaced(run, role, target)
        return [
            EvidenceCheck("the processes of the member are gone", gone, f"pids {pids}"),
            EvidenceCheck("its place was taken", again, f"{members.members(run, role)} in the role {role}"),
            *([replaced] if replaced is not None else []),
            run.goes_on(members.EVIDENCE_S),
        ]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """Nothing to undo: the job starts it again."""
        return []
