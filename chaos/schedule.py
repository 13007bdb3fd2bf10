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

from chaos.experiment import BadInput, Experiment
from chaos.faults import FAULTS
from delivery.folder import EvidenceError, RunFolder

STEADY_SHARE = 0.2
IMPACT_SHARE = 0.75
LATEST_IMPACT_SHARE = 0.95
MIN_BATCHES = 8
EARLIEST_AT, LATEST_AT = 0.3, 0.55
LOOKAHEAD_BATCHES = 2


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

    @classmethod
    def read(cls, folder: RunFolder) -> Schedule:
        """The schedule of a run. Raises EvidenceError naming the file when it is missing or damaged."""
        data = folder.read_json(folder.schedule)
        try:
            return cls.from_json(json.dumps(data))
        except (KeyError, TypeError) as error:
            raise EvidenceError(f"{folder.schedule} is not a schedule: {error}") from error


def plan(experiment: Experiment) -> Schedule:
    """The same experiment and seed give the same schedule, byte for byte.

    Raises BadInput when the workload has too few micro-batches for its faults to show their evidence.
    """
    rng = random.Random(f"schedule:{experiment.seed}")
    counts: dict[str, int] = {}
    injections = []
    for spec in experiment.faults:
        counts[spec.fault] = counts.get(spec.fault, 0) + 1
        drawn = round(rng.uniform(EARLIEST_AT, LATEST_AT), 3)
        parameters = FAULTS[spec.fault].parameters_model.model_validate(spec.parameters).model_dump(mode="json")
        injections.append(Injection(f"{spec.fault}-{counts[spec.fault]}", spec.fault, spec.at or drawn, parameters))
    injections.sort(key=lambda injection: injection.at)
    first = injections[0].at if injections else 1.0
    return Schedule(experiment.seed, round(min(STEADY_SHARE, first / 2), 3), _impact_share(experiment, injections), tuple(injections))


def _impact_share(experiment: Experiment, injections: list[Injection]) -> float:
    """Until where the impact phase goes: one fault after the other, each with the batches that its evidence needs."""
    records, batch = experiment.workload.records, experiment.micro_batch
    if records < MIN_BATCHES * batch:
        raise BadInput(
            f"batch_records: {records} records in micro-batches of {batch} are fewer than {MIN_BATCHES} batches, too few for three phases: "
            f"set batch_records to at most {records // MIN_BATCHES}"
        )
    reached = 0.0
    for injection in injections:
        fault = FAULTS[injection.fault]
        needed = fault.batches(fault.parameters_model.model_validate(injection.parameters))
        reached = max(reached, injection.at) + needed * batch / records
    if reached > LATEST_IMPACT_SHARE:
        names = ", ".join(injection.injection for injection in injections)
        raise BadInput(
            f"faults: {names} need records up to {reached:.0%} of the workload to show their evidence, expected at most "
            f"{LATEST_IMPACT_SHARE:.0%}: strike earlier (`at`), send more records, or set batch_records below {batch}"
        )
    return round(max(IMPACT_SHARE, reached), 3)
