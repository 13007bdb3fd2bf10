"""The schedule of a run: which fault strikes when. Made from the experiment and its seed alone.

A run has three phases. *Steady*: no fault; it proves that the pipeline works. *Impact*: the faults. *Recovery*: no fault; it must catch
up. They advance on the share of the workload that the job has committed, never on a clock. The workload is held at a *gate* a few
batches ahead of what comes next, so that there are always records left to meet a fault.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from typing import Any

from chaos.experiment import Experiment
from chaos.faults import FAULTS

STEADY_SHARE = 0.2
IMPACT_SHARE = 0.75
EARLIEST_AT, LATEST_AT = 0.3, 0.55
LOOKAHEAD_BATCHES = 3


@dataclass(frozen=True)
class Injection:
    """One planned fault. ``at`` is a share of the records, in (0, 1); ``parameters`` are complete."""

    injection: str
    fault: str
    at: float
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Schedule:
    seed: int
    steady_share: float
    impact_share: float
    injections: tuple[Injection, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        data = json.loads(text)
        return cls(**{**data, "injections": tuple(Injection(**injection) for injection in data["injections"])})


def plan(experiment: Experiment) -> Schedule:
    """The same experiment and seed give the same schedule, byte for byte."""
    rng = random.Random(f"schedule:{experiment.seed}")
    counts: dict[str, int] = {}
    injections = []
    for spec in experiment.faults:
        counts[spec.fault] = counts.get(spec.fault, 0) + 1
        drawn = round(rng.uniform(EARLIEST_AT, LATEST_AT), 3)
        parameters = FAULTS[spec.fault].parameters_model.model_validate(spec.parameters).model_dump(mode="json")
        injections.append(Injection(f"{spec.fault}-{counts[spec.fault]}", spec.fault, spec.at or drawn, parameters))
    injections.sort(key=lambda injection: injection.at)
    last = injections[-1].at if injections else 0.0
    return Schedule(experiment.seed, STEADY_SHARE, round(min(0.95, max(IMPACT_SHARE, last + 0.2)), 3), tuple(injections))
