"""What the faults share that strike one process of a job of several: which one it is, and what its engine says of it."""

from __future__ import annotations

import contextlib
import os
import random
from typing import Any, Literal

import psutil
from pydantic import Field

from streamproof.engines import members as keeper
from streamproof.faults.fault import DRIVER, EvidenceCheck, Parameters, RunContext, Unconditional
from streamproof.jobs.profile import JobProfile, Role, Trait
from streamproof.testbed import embedded
from streamproof.testbed.process import process_record

ROLES = (Role.WORKERS, Role.COORDINATOR, Role.PYTHON_WORKERS)
RoleName = Literal["workers", "coordinator", "Python workers"]
AGAIN_S = 60.0
EVIDENCE_S = 120.0


class MemberParameters(Parameters):
    role: RoleName = Field(
        "workers",
        description="workers: one of those that do the work; coordinator: the one that leads them; Python workers: their Python",
    )


class MemberFault(Unconditional):
    """A fault of one of several processes, with those that it leads; its job starts it again."""

    target = "a process of the job"
    occupies = frozenset({DRIVER})
    ends_connections = True

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        super().check(profile, parameters)
        role = Role(parameters.get("role", Role.WORKERS))
        if role not in _roles(profile):
            raise ValueError(f"{self.name}: a job with {profile.name!r} has no {role} of its own")

    def outside(self, parameters: Any) -> frozenset[embedded.Role]:
        return frozenset()

    def here_only(self, parameters: Any) -> frozenset[Role]:
        return frozenset({Role(parameters.role)})

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        roles = [role.value for role in _roles(profile)]
        return {"role": rng.choice(roles)} if roles else None


def _roles(profile: JobProfile) -> list[Role]:
    """Those in which a process can be struck alone. Spark's Python workers come and go with its tasks, and have a fault of their own."""
    return [role for role in ROLES if role in profile.roles and not (role is Role.PYTHON_WORKERS and Role.EXECUTORS in profile.roles)]


def chosen(run: RunContext, role: Role) -> dict[str, Any]:
    """One member in that role, of how many: the processes of its group, and whom the engine knows now in it. Where others stand by, it is
    the one that leads."""
    groups = run.wait_for(f"a process in the role {role}", lambda: _groups(run, role), EVIDENCE_S)
    found: dict[str, Any] = {"role": role.value, "members": len(groups)}
    if role is Role.COORDINATOR and Trait.STANDBY in run.profile.traits:
        group = run.wait_for("one that leads", lambda: run.engine.leader(run.job, role), EVIDENCE_S)
        groups = _groups(run, role)
        standbys = [record for leader, each in groups.items() if leader != group for record in each]
        found |= {"members": len(standbys) + 1, "standbys": standbys}
    else:
        group = run.rng.choice(sorted(groups))
    known = sorted(run.engine.known(run.job, role, run.testbed))
    return {**found, "member": group, "victims": groups[group], "known": known}


def starter(run: RunContext) -> list[dict[str, Any]]:
    """The process that starts the others of the job, and starts them again: while it stands still, none begins."""
    found = []
    for process in run.engine.processes(run.job, Role.DRIVER):
        with contextlib.suppress(psutil.Error):
            found += [process_record(process)] if keeper.__name__ in process.cmdline() else []
    return found


def others(run: RunContext, role: Role, target: dict[str, Any]) -> bool:
    """Whether as many members as the role had play it again, none of them that one."""
    groups = _groups(run, role)
    return target["member"] not in groups and len(groups) >= target["members"]


def members(run: RunContext, role: Role) -> int:
    return len(_groups(run, role))


def _groups(run: RunContext, role: Role) -> dict[Any, list[dict[str, Any]]]:
    """Those in the role, as a journal keeps them, by the process that leads their group; one whose leader plays another role stands alone,
    and so does each that a template finds."""
    if run.testbed.template(role) is not None:
        return {each["id"]: [each] for each in run.found(role)}
    found = run.engine.processes(run.job, role)
    pids = {process.pid for process in found}
    groups: dict[Any, list[dict[str, Any]]] = {}
    for process in found:
        try:
            leader = os.getpgid(process.pid)
            record = process_record(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
        groups.setdefault(leader if leader in pids else process.pid, []).append(record)
    return groups


def given_up(run: RunContext, role: Role, target: dict[str, Any], seconds: float) -> EvidenceCheck | None:
    """That the engine counts somebody no more whom it knew before, within so many seconds; None of an engine that does not tell."""
    before = set(target["known"])
    if not before:
        return None
    missed = run.eventually(lambda: bool(before - run.engine.known(run.job, role, run.testbed)), seconds)
    now = run.engine.known(run.job, role, run.testbed)
    told = f"it knew {len(before)}, of these it knows {len(before & now)} still"
    return EvidenceCheck(f"{run.engine.name} itself had given one up meanwhile", missed, told)


def taken_over(run: RunContext, role: Role, target: dict[str, Any]) -> EvidenceCheck | None:
    """That one leads now that stood by before; None where none did."""
    if "standbys" not in target:
        return None
    stood_by = {standby["pid"] for standby in target["standbys"]}
    over = run.eventually(lambda: run.engine.leader(run.job, role) in stood_by, EVIDENCE_S)
    told = f"{target['member']} led, {', '.join(map(str, sorted(stood_by))) or 'none'} stood by; {run.engine.leader(run.job, role)} leads"
    return EvidenceCheck("one leads that stood by", over, told)


def replaced(run: RunContext, role: Role, target: dict[str, Any]) -> EvidenceCheck | None:
    """That the engine knows somebody in the role whom it did not know before; None of an engine that does not tell."""
    before = set(target["known"])
    if not before:
        return None
    new = run.eventually(lambda: bool(run.engine.known(run.job, role, run.testbed) - before), EVIDENCE_S)
    now = run.engine.known(run.job, role, run.testbed)
    told = f"it knew {', '.join(sorted(before))}; it knows {', '.join(sorted(now)) or 'none'}"
    return EvidenceCheck(f"{run.engine.name} itself counts another in the role {role}", new, told)


__all__ = ["MemberFault", "MemberParameters", "chosen", "given_up", "members", "others", "replaced", "starter", "taken_over"]
