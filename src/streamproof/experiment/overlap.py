"""Which faults can overlap. A fault with ``overlaps: true`` is injected while the one before it lasts; together they are a group.

Groups follow each other, so only what is within one can get into another's way. Each fault names what it needs for itself
(``Fault.needs``): the server that it probes, the link whose toxics it removes again, the driver whose starts it counts. Two that name
the same cannot overlap: what one of them showed might be the other's doing, or be undone by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, Protocol, TypeVar

from streamproof.faults import FAULTS
from streamproof.faults.fault import FAILPOINTS, LINKS


class Planned(Protocol):
    """A fault of an experiment, or an injection of a schedule."""

    @property
    def fault(self) -> str: ...

    @property
    def parameters(self) -> dict[str, Any]: ...

    @property
    def step(self) -> str | None: ...

    @property
    def window(self) -> str | None: ...

    @property
    def overlaps(self) -> bool: ...


AnyPlanned = TypeVar("AnyPlanned", bound=Planned)


def groups(planned: Iterable[AnyPlanned]) -> list[list[AnyPlanned]]:
    """The faults that are injected together: one, and those after it that overlap."""
    grouped: list[list[AnyPlanned]] = []
    for injection in planned:
        if injection.overlaps and grouped:
            grouped[-1].append(injection)
        else:
            grouped.append([injection])
    return grouped


def conflict(group: Sequence[Planned]) -> str | None:
    """Why the faults of a group cannot overlap; None when they can."""
    for first, second in combinations(group, 2):
        shared = _shared(first, second)
        if shared is not None:
            return f"{first.fault} and {second.fault} cannot overlap: {shared}"
    return None


def _shared(first: Planned, second: Planned) -> str | None:
    for injection in (first, second):
        if _needs(injection) is None:
            return f"{injection.fault} is injected alone"
    both = sorted(_occupies(first) & _occupies(second))
    return f"each needs {' and '.join(both)} for itself" if both else None


def _needs(planned: Planned) -> frozenset[str] | None:
    fault = FAULTS[planned.fault]
    return fault.needs(fault.parameters_model.model_validate(planned.parameters))


def _occupies(planned: Planned) -> frozenset[str]:
    held_at = {FAILPOINTS} if planned.step is not None else set()
    return (_needs(planned) or frozenset()) | held_at | (LINKS if planned.window is not None else set())
