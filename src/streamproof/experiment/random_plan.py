"""The faults of a random experiment, drawn from its seed: which, in which order, when, and with which parameters.

It draws faults that fit the job and after which the job need not show any anomaly, each with parameters from a small range of its own
(``Fault.draw``). They come as from a shuffled deck: no fault comes twice before each came once. Each has the room in the workload that its
evidence needs, then the quiet; the rest of the workload is spread between them. With ``overlaps`` some are injected while the one before
them lasts in the background. The result is a list of faults like any other: written down, it is the same plan.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from typing import Any

from streamproof.errors import BadInput
from streamproof.experiment import overlap
from streamproof.experiment.model import Experiment, FaultSpec, Random
from streamproof.experiment.room import LATEST_IMPACT_SHARE, Room
from streamproof.faults import FAULTS

FIRST_AT, LAST_AT = 0.1, 0.9
OVERLAP_CHANCE = 0.5


def draw(experiment: Experiment, plan: Random) -> list[FaultSpec]:
    """The same experiment and seed give the same faults. Raises BadInput when none can be drawn, or not as many as are wanted."""
    rng = random.Random(f"random:{experiment.seed}")
    room = experiment.room
    deck = _Deck(experiment, plan, rng)
    left, drawn = LATEST_IMPACT_SHARE - FIRST_AT, list[FaultSpec]()
    for others in reversed(range(plan.count)):
        spec = deck.draw(room, left - others * (deck.least(room) + room.quiet_share))
        if spec is None:
            raise BadInput(
                f"random: {plan.count} faults with a quiet of {plan.quiet} need more than the {1 / room.batch_share:.0f} micro-batches "
                f"of this workload: draw fewer (`count`), or set batch_records below {experiment.micro_batch}"
            )
        left -= room.share(spec.fault, spec.parameters) + room.quiet_share
        drawn.append(spec)
    if plan.overlaps:
        drawn = _overlapping(drawn, rng)
    return _placed(drawn, room, rng)


class _Deck:
    """The faults that can be drawn, shuffled; when all of them were, they are shuffled again."""

    def __init__(self, experiment: Experiment, plan: Random, rng: random.Random) -> None:
        self._experiment, self._rng = experiment, rng
        names = list(dict.fromkeys(plan.faults or FAULTS))
        self._names = drawable(experiment, names)
        strange = [name for name in plan.faults or () if name not in self._names]
        if strange:
            raise BadInput(
                f"random.faults: {', '.join(strange)} cannot be drawn for {experiment.label!r}: it would have to show an anomaly, or "
                "the fault may outlast a run"
            )
        if not self._names:
            raise BadInput(f"random: no fault can be drawn for {experiment.label!r}: name them in `faults`")
        self._cards: list[str] = []

    def least(self, room: Room) -> float:
        """What the fault that needs least room needs, as a share of the records."""
        return min(room.share(name, drawn_parameters(name, self._experiment, random.Random(0)) or {}) for name in self._names)

    def draw(self, room: Room, left: float) -> FaultSpec | None:
        """The next fault that fits into ``left``, a share of the records."""
        for _ in range(2):
            for name in self._cards:
                parameters = drawn_parameters(name, self._experiment, self._rng)
                if parameters is not None and room.share(name, parameters) <= left:
                    self._cards.remove(name)
                    return FaultSpec(fault=name, parameters=parameters)
            self._cards = self._rng.sample(self._names, len(self._names))
        return None


def drawable(experiment: Experiment, names: Iterable[str] = tuple(FAULTS)) -> list[str]:
    """Those of the faults that chance may inject into the experiment's job."""
    return [name for name in names if drawn_parameters(name, experiment, random.Random(0)) is not None]


def drawn_parameters(name: str, experiment: Experiment, rng: random.Random) -> dict[str, Any] | None:
    """Drawn parameters of a fault; None when they do not fit the experiment's job, or must show an anomaly after it."""
    fault, profile = FAULTS[name], experiment.profile
    parameters = fault.draw(rng, profile)
    if parameters is None:
        return None
    try:
        experiment.check_fault(name, parameters)
        drawn = fault.parameters_model.model_validate(parameters)
    except ValueError:
        return None
    return None if fault.provokes(profile, parameters) else drawn.model_dump(mode="json", exclude_none=True)


def _overlapping(drawn: list[FaultSpec], rng: random.Random) -> list[FaultSpec]:
    """Some of the faults that follow one in the background are injected under it, where both can be."""
    specs = drawn[:1]
    for spec in drawn[1:]:
        under = spec.model_copy(update={"overlaps": True})
        leader = specs[-1]
        fits = FAULTS[leader.fault].background and not leader.overlaps and overlap.conflict([leader, under]) is None
        specs.append(under if fits and rng.random() < OVERLAP_CHANCE else spec)
    return specs


def _placed(drawn: list[FaultSpec], room: Room, rng: random.Random) -> list[FaultSpec]:
    """Give each fault its share; those that overlap have that of the one before them."""
    groups = overlap.groups(drawn)
    needed = [sum(room.share(spec.fault, spec.parameters) for spec in group) + room.quiet_share for group in groups]
    spare = max(0.0, min(LATEST_IMPACT_SHARE - FIRST_AT - sum(needed), LAST_AT - FIRST_AT - sum(needed[:-1])))
    gaps = sorted(rng.uniform(0, spare) for _ in groups)
    placed = list[FaultSpec]()
    for number, (first, *others) in enumerate(groups):
        at = math.floor(1000 * min(LAST_AT, FIRST_AT + sum(needed[:number]) + gaps[number])) / 1000
        placed += [FaultSpec.model_validate({**first.model_dump(), "at": at}), *others]
    return placed
