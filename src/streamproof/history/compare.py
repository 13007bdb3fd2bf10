"""What differs between two runs, and whether their figures can be compared.

Two runs are comparable when they are the same experiment: pipeline, strategy, guarantee, faults with their parameters, workload,
micro-batch and seed. Versions may differ: what a new version costs is what people compare runs for. A setting that only one of the two
knows came with another version of streamproof, and is no difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from streamproof.history.record import FIGURES, Run

OBSTACLES = {
    "pipeline": "another pipeline",
    "strategy": "another strategy",
    "guarantee": "another guarantee",
    "faults": "other faults",
    "seed": "another seed",
    "workload": "another workload",
    "testbed": "another testbed",
    "brokers": "another number of brokers",
    "batch_records": "another size of micro-batches",
}
COUNTS = ("acked", "delivered", "driver_starts", "batches")


@dataclass(frozen=True)
class Difference:
    """One thing that two runs do not share. ``ratio`` is the second by the first, where both are numbers."""

    group: str
    name: str
    first: Any
    second: Any

    @property
    def ratio(self) -> float | None:
        numbers = [value for value in (self.first, self.second) if isinstance(value, int | float) and not isinstance(value, bool)]
        return round(numbers[1] / numbers[0], 2) if len(numbers) == 2 and numbers[0] else None


@dataclass(frozen=True)
class Comparison:
    """``obstacles`` say what makes the two another experiment; none when they are comparable."""

    first: Run
    second: Run
    obstacles: tuple[str, ...]
    differences: tuple[Difference, ...]

    @property
    def comparable(self) -> bool:
        return not self.obstacles


def compare(first: Run, second: Run) -> Comparison:
    pairs = [*_results(first, second), *_figures(first, second), *_conditions(first, second)]
    differences = tuple(pair for pair in pairs if pair.first != pair.second)
    others = dict.fromkeys(pair.name.split(".")[0] for pair in differences if pair.group in ("experiment", "settings"))
    return Comparison(first, second, tuple(OBSTACLES[name] for name in others if name in OBSTACLES), differences)


def conditions(first: Run, second: Run) -> tuple[Difference, ...]:
    """What was another between two runs of one cell before anything was measured: seed, settings, versions."""
    return tuple(pair for pair in _conditions(first, second) if pair.first != pair.second)


def same_conditions(first: Run, second: Run) -> bool:
    """Whether there is no such thing."""
    return all(pair.first == pair.second for pair in _conditions(first, second))


def same_settings(first: Run, second: Run) -> bool:
    return all(pair.first == pair.second for pair in _settings(first, second))


def _results(first: Run, second: Run) -> Iterator[Difference]:
    yield Difference("outcome", "outcome", str(first.outcome), str(second.outcome))
    yield Difference("outcome", "reason", first.reason, second.reason)
    yield from _each("anomalies", first.anomalies, second.anomalies)
    for name in COUNTS:
        yield Difference("records" if name in ("acked", "delivered") else "job", name, getattr(first, name), getattr(second, name))


def _figures(first: Run, second: Run) -> Iterator[Difference]:
    for name in FIGURES:
        yield Difference("recovery", name, getattr(first, name), getattr(second, name))
    yield from _each("records/s", first.records_per_s, second.records_per_s)
    yield Difference("duration", "whole run", first.duration_s, second.duration_s)
    yield from _each("duration", first.stage_seconds, second.stage_seconds)


def _conditions(first: Run, second: Run) -> Iterator[Difference]:
    for name in ("pipeline", "strategy", "guarantee", "faults", "seed"):
        yield Difference("experiment", name, getattr(first, name), getattr(second, name))
    yield from _settings(first, second)
    yield from _each("versions", first.versions, second.versions)


def _settings(first: Run, second: Run) -> Iterator[Difference]:
    one, other = _flat(first.settings), _flat(second.settings)
    return (Difference("settings", name, one[name], other[name]) for name in one if name in other)


def _each(group: str, first: dict[str, Any], second: dict[str, Any]) -> Iterator[Difference]:
    for name in {**first, **second}:
        yield Difference(group, name, first.get(name), second.get(name))


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """``{"workload": {"records": 1}}`` as ``{"workload.records": 1}``."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= {f"{name}.{key}": inner for key, inner in _flat(value).items()} if isinstance(value, dict) else {name: value}
    return flat
