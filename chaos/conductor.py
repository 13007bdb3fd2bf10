"""The step ``inject_faults``: lead the run through its phases, and strike by the schedule.

Each injection is journaled before it happens, and is healed whatever comes between: also when the run ends in the middle.
"""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from typing import Any

from chaos.faults import FAULTS
from chaos.faults.fault import FaultError, RunEnded, Scene
from chaos.heal import heal_injection
from chaos.schedule import LOOKAHEAD_BATCHES, Injection, Schedule
from chaos.workload import Gate
from testbed.process import TestbedError

PHASE_S = 600.0
log = logging.getLogger("chaos.conductor")


def conduct(scene: Scene, schedule: Schedule) -> None:
    """Steady, impact, recovery, done. An injection that does not bite is journaled; it does not end the run."""
    gate, journal = Gate(scene.folder), scene.folder.journal
    ahead = LOOKAHEAD_BATCHES * scene.job.batch_records

    def committed(share: float) -> None:
        scene.wait_for(f"{share:.0%} of the records committed", lambda: scene.progress.committed() >= share * scene.records, PHASE_S)

    def phase(name: str) -> None:
        journal.append("phase", phase=name)
        log.info("phase: %s", name)

    phase("steady")
    gate.open_to(int(schedule.steady_share * scene.records) + ahead)
    committed(schedule.steady_share)
    phase("impact")
    limit = int(schedule.impact_share * scene.records)
    # Before a fault strikes the workload stays a little ahead of the job: there is always work, and always something left to send.
    gate.open_to(limit, ahead)
    for injection in schedule.injections:
        committed(injection.at)
        strike(replace(scene, rng=random.Random(f"{injection.injection}:{schedule.seed}")), injection)
    gate.open_to(limit)
    # The last impact batch must not be counted as recovery: wait until what the impact phase sent is (nearly) committed.
    committed(schedule.impact_share - 2 * scene.job.batch_records / scene.records)
    phase("recovery")
    gate.open_to(scene.records)
    scene.wait_for("the end of the workload", lambda: journal.last("load_finished"), PHASE_S)
    scene.wait_for("the backlog to be gone", lambda: scene.progress.committed() >= _written(scene), PHASE_S)
    phase("done")


def _written(scene: Scene) -> int:
    """Records that are certainly in the input topic."""
    return int((scene.folder.journal.last("load_finished") or {}).get("acked", scene.records))


def strike(scene: Scene, injection: Injection) -> None:
    """One fault from aim to heal."""
    fault, journal, name = FAULTS[injection.fault], scene.folder.journal, injection.injection
    parameters = fault.parameters_model.model_validate(injection.parameters)
    target: dict[str, Any] | None = None
    try:
        target = fault.aim(scene, parameters)
        journal.append("injection_started", injection=name, fault=fault.name, target=target, parameters=injection.parameters)
        log.info("%s: %s", name, fault.summary)
        fault.inject(scene, parameters, target)
        journal.append("injection_injected", injection=name, target=target)
        claims = fault.evidence(scene, parameters, target)
        journal.append("injection_evidence", injection=name, claims=[claim.to_dict() for claim in claims])
        for claim in claims:
            log.info("%s: %s: %s (%s)", name, claim.claim, "yes" if claim.holds else "NO", claim.detail)
    except (FaultError, TestbedError) as error:
        journal.append("injection_failed", injection=name, error=str(error))
        log.warning("%s did not bite: %s", name, error)
    finally:
        if target is not None:
            heal_injection(scene.testbed, scene.folder, name, fault.name, target)


__all__ = ["RunEnded", "conduct", "strike"]
