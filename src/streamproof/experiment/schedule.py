"""The schedule of a run: which fault is injected when. Made from the experiment and its seed alone.

A run has three phases. *Steady*: no fault; it proves that the pipeline works. *Impact*: the faults. *Recovery*: it must catch up, with no
fault but those that an experiment wants there. Before them comes a *start* where an experiment has faults for it. They advance on the
share of the workload that the job has committed, never on a clock. The workload is held at a *gate* a few batches ahead of what comes
next, so that there are always records left to meet a fault.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from streamproof.errors import BadInput
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.journal import injections_of
from streamproof.experiment import overlap
from streamproof.experiment.model import Experiment, FaultSpec, Phase
from streamproof.experiment.random_plan import draw
from streamproof.experiment.room import LATEST_IMPACT_SHARE, Room
from streamproof.faults import FAULTS

STEADY_SHARE = 0.2
IMPACT_SHARE = 0.75
MIN_BATCHES = 8
EARLIEST_AT, LATEST_AT = 0.3, 0.55
LEAST_AT, MOST_AT = 0.05, 0.9
LEAST_STEADY = 0.001


@dataclass(frozen=True)
class Injection:
    """One planned fault; ``parameters`` are complete.

    It is injected once ``at``, a share of the records, is committed: not before the ``batch``-th micro-batch is, if it waits for one,
    and not before the job reaches ``step``, or is in ``window``. One that ``overlaps`` is injected as soon as the one before it is.
    """

    injection: str
    fault: str
    at: float
    parameters: dict[str, Any]
    batch: int | None = None
    step: str | None = None
    overlaps: bool = False
    phase: Phase = Phase.IMPACT
    window: str | None = None


@dataclass(frozen=True)
class Schedule:
    seed: int
    steady_share: float
    impact_share: float
    injections: tuple[Injection, ...]
    quiet: float | str = 0.0

    def groups(self, phase: Phase) -> list[list[Injection]]:
        """What is injected in a phase, in order: each group after the one before it, those of a group together."""
        return overlap.groups(injection for injection in self.injections if injection.phase == phase)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        data = json.loads(text)
        injections = (Injection(**{**fields, "phase": Phase(fields.get("phase", Phase.IMPACT))}) for fields in data["injections"])
        return cls(**{**data, "injections": tuple(injections)})

    @classmethod
    def read(cls, folder: RunFolder) -> Schedule:
        """The schedule of a run. Raises EvidenceError naming the file when it is missing or damaged."""
        data = folder.read_json(folder.schedule)
        try:
            return cls.from_json(json.dumps(data))
        except (KeyError, TypeError, ValueError) as error:
            raise EvidenceError(f"{folder.schedule} is not a schedule: {error}") from error


def plan(experiment: Experiment) -> Schedule:
    """The same experiment and seed give the same schedule, byte for byte.

    Raises BadInput when the workload has too few micro-batches for its faults to show their evidence.
    """
    room = experiment.room
    if room.records < MIN_BATCHES * room.batch_records:
        raise BadInput(
            f"batch_records: {room.records} records in micro-batches of {room.batch_records} are fewer than {MIN_BATCHES} batches, too few "
            f"for three phases: set batch_records to at most {room.records // MIN_BATCHES}"
        )
    specs = _specs(experiment)
    groups = overlap.groups(_injections(specs, room, random.Random(f"schedule:{experiment.seed}")))
    impact = sorted((group for group in groups if group[0].phase is Phase.IMPACT), key=lambda group: group[0].at)
    recovery = [group for group in groups if group[0].phase is Phase.RECOVERY]
    start = [group for group in groups if group[0].phase is Phase.START]
    first = impact[0][0].at if impact else 1.0
    steady = round(share(start, room) + min(STEADY_SHARE, first / 2), 3)
    if start:
        impact = [[replace(each, at=max(each.at, round(steady + LEAST_STEADY, 3))) for each in group] for group in impact]
    reached = _reached(impact, room, steady + LEAST_STEADY if start else 0.0)
    latest = min(LATEST_IMPACT_SHARE, 1 - share(recovery, room))
    if latest < IMPACT_SHARE / 2:
        raise BadInput(
            f"faults: those of the recovery phase need {1 - latest:.0%} of the records, expected at most {1 - IMPACT_SHARE / 2:.0%}: "
            f"{smaller_batches(experiment)}"
        )
    if reached > latest + 1e-9:
        names = ", ".join(injection.injection for group in (*start, *impact) for injection in group)
        later = "" if latest == LATEST_IMPACT_SHARE else ", to leave those of the recovery phase their part"
        raise BadInput(
            f"faults: {names} need records up to {reached:.0%} of the workload to show their evidence, expected at most "
            f"{latest:.0%}{later}: inject earlier (`at`), or {smaller_batches(experiment)}"
        )
    impact_share = round(max(min(IMPACT_SHARE, latest), reached), 3)
    late = (replace(injection, at=impact_share) for group in recovery for injection in group)
    early = (replace(injection, at=0.0) for group in start for injection in group)
    return Schedule(
        experiment.seed,
        steady,
        impact_share,
        (*early, *(injection for group in impact for injection in group), *late),
        experiment.quiet_between,
    )


def smaller_batches(experiment: Experiment) -> str:
    """What to do when the micro-batches are too few. Their size follows the number of records, unless the experiment gives it."""
    below = f"set batch_records below {experiment.micro_batch}"
    return below if experiment.batch_records is None else f"send more records, or {below}"


def planned_faults(experiment: Experiment) -> tuple[str, ...]:
    """The fault of each injection that :func:`plan` plans."""
    return tuple(spec.fault for spec in _specs(experiment))


def _specs(experiment: Experiment) -> Sequence[FaultSpec]:
    return experiment.faults if experiment.random is None else draw(experiment, experiment.random)


def _injections(specs: Sequence[FaultSpec], room: Room, rng: random.Random) -> Iterator[Injection]:
    """The faults in the order of the experiment, numbered, each with the share from which it may be injected."""
    before, phase = EARLIEST_AT, Phase.IMPACT
    for spec, name in zip(specs, injections_of(spec.fault for spec in specs), strict=True):
        at = round(rng.uniform(EARLIEST_AT, LATEST_AT), 3)  # drawn for each, so that a trigger which is given moves no other
        if spec.at is not None:
            at = spec.at
        elif spec.batch is not None:
            at = _share_of(spec, spec.batch, room)
        elif spec.step is not None or spec.window is not None or spec.overlaps:
            at = before
        phase = phase if spec.overlaps else spec.phase
        if phase is Phase.IMPACT:
            before = at
        parameters = FAULTS[spec.fault].parameters_model.model_validate(spec.parameters).model_dump(mode="json")
        yield Injection(name, spec.fault, at, parameters, spec.batch, spec.step, spec.overlaps, phase, spec.window)


def _share_of(spec: FaultSpec, batch: int, room: Room) -> float:
    """By which share of the records that many micro-batches are certainly committed."""
    at = math.ceil(round(1000 * batch * room.batch_share, 6)) / 1000
    if not LEAST_AT <= at <= MOST_AT:
        least, most = math.ceil(LEAST_AT / room.batch_share), math.floor(MOST_AT / room.batch_share)
        batches = f"the {1 / room.batch_share:.0f} micro-batches of this workload"
        raise BadInput(f"faults: {spec.fault} is injected after batch {batch} of {batches}, expected {least} to {most}")
    return at


def share(groups: Iterable[Sequence[Injection]], room: Room) -> float:
    """The share of the records that all of ``groups`` take, one after the other, with the quiet before each."""
    return sum(room.quiet_share + _needed(group, room) for group in groups)


def _needed(group: Sequence[Injection], room: Room) -> float:
    return sum(room.share(injection.fault, injection.parameters) for injection in group)


def _reached(groups: Sequence[Sequence[Injection]], room: Room, reached: float) -> float:
    """Until where the impact phase goes: one group after the other, each with the batches that its evidence needs; ``reached`` is where it
    begins at the earliest."""
    for number, group in enumerate(groups):
        reached = max(reached + (room.quiet_share if number else 0.0), group[0].at) + _needed(group, room)
    return reached
