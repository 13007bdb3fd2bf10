"""A run as the history remembers it: one flat row, read from the run's folder.

Rows are grouped in cells. A *cell* is what a night runs again and again: a pipeline, the strategy and the guarantee that it is held to, and
the faults with their parameters. Neither the seed nor the settings (workload, brokers, timeouts) belong to it: the guarantee has to hold
whatever they are. Times are another matter, they are compared between runs with the same settings only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import yaml

from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.journal import Event, Restored, StageFinished
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.verdict import Verdict

NO_FAULT = "none"
RANDOM = "random"
FIGURES = ("recovery_s", "caught_up_s", "longest_gap_s", "output_s")
# What of an experiment is told elsewhere in the row, or is no setting.
_NO_SETTINGS = ("name", "pipeline", "strategy", "guarantee", "faults", "random", "expect", "seed")


class HistoryError(Exception):
    """The history cannot be read or written. The message names the store, without its password, and what to do."""


@dataclass(frozen=True, order=True)
class Cell:
    """``faults`` is what :func:`describe` says of them, ``none`` when there is none."""

    pipeline: str
    strategy: str
    guarantee: str
    faults: str

    def __str__(self) -> str:
        return f"{self.strategy} ({self.guarantee}) x {self.faults}"


@dataclass(frozen=True)
class Run:
    """One run. ``fault_names`` are those that were planned; what is not known (of a run that broke) is None or empty. ``windows`` are those
    of the job that were seen, where its messages were read, and ``windows_hit`` those in which it was killed."""

    run: str
    folder: str
    experiment: str
    began_at: datetime
    duration_s: float
    pipeline: str
    strategy: str
    guarantee: str
    faults: str
    fault_names: tuple[str, ...]
    seed: int
    settings: dict[str, Any]
    versions: dict[str, str]
    outcome: RunOutcome
    reason: str
    anomalies: dict[str, int]
    expected: tuple[str, ...]
    acked: int | None
    delivered: int | None
    recovery_s: float | None
    caught_up_s: float | None
    longest_gap_s: float | None
    output_s: float | None
    records_per_s: dict[str, float | None]
    driver_starts: int | None
    batches: int | None
    stage_seconds: dict[str, float]
    windows: tuple[str, ...] = ()
    windows_hit: tuple[str, ...] = ()

    @property
    def cell(self) -> Cell:
        return Cell(self.pipeline, self.strategy, self.guarantee, self.faults)


def read(folder: RunFolder) -> Run:
    """The row of a run that has a verdict. Raises EvidenceError when one of the files that it rests on is missing or damaged."""
    verdict, experiment, schedule = Verdict.read(folder), _experiment(folder), folder.read_json(folder.schedule)
    events = folder.journal.events()
    begun, ended = _moments(folder, events)
    try:
        planned = schedule["injections"]
        drawn = experiment.get("random")
        return Run(
            run=folder.name,
            folder=str(folder.path),
            experiment=verdict.experiment,
            began_at=begun,
            duration_s=round((ended - begun).total_seconds(), 3),
            pipeline=verdict.pipeline,
            strategy=verdict.strategy,
            guarantee=str(verdict.guarantee),
            faults=describe(planned) if drawn is None else _drawn(drawn),
            fault_names=tuple(dict.fromkeys(injection["fault"] for injection in planned)),
            seed=verdict.seed,
            settings={name: value for name, value in experiment.items() if name not in _NO_SETTINGS},
            versions=dict(verdict.versions),
            outcome=verdict.outcome,
            reason=verdict.reason,
            anomalies={str(anomaly): number for anomaly, number in verdict.anomalies.items()},
            expected=tuple(map(str, verdict.expected_anomalies)),
            acked=verdict.sent.acked if verdict.sent is not None else None,
            delivered=verdict.delivered,
            recovery_s=verdict.recovery_s,
            caught_up_s=verdict.caught_up_s,
            longest_gap_s=verdict.longest_gap_s,
            output_s=verdict.output_s,
            records_per_s={phase: figures.records_per_s for phase, figures in verdict.phases.items()},
            driver_starts=verdict.driver_starts,
            batches=verdict.batches,
            stage_seconds={event.stage: event.seconds for event in events if isinstance(event, StageFinished)},
            windows=verdict.windows.known if verdict.windows is not None else (),
            windows_hit=verdict.windows.hit if verdict.windows is not None else (),
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise EvidenceError(f"{folder.path} cannot be taken into the history: {type(error).__name__}: {error}") from error


def began(folder: RunFolder) -> datetime:
    """When the run of this folder began. Raises EvidenceError when its journal does not say."""
    return _moments(folder, folder.journal.events())[0]


def lately(runs: Sequence[Run], since: datetime | None) -> list[Run]:
    """All runs of those cells that were run since."""
    cells = {run.cell for run in runs if since is None or run.began_at >= since}
    return [run for run in runs if run.cell in cells]


def describe(injections: Iterable[dict[str, Any]]) -> str:
    """The planned faults with their parameters, the same text for the same plan: ``crash_at_step(action=raise, step=after_output)``.

    When a fault is injected is left out as far as the seed decides it.
    """
    return " + ".join(map(_injection, injections)) or NO_FAULT


def _injection(injection: dict[str, Any]) -> str:
    parameters = {name: value for name, value in injection["parameters"].items() if value is not None}
    arguments = [f"{name}={_plain(parameters[name])}" for name in sorted(parameters)]
    if injection.get("step") is not None:
        arguments.append(f"as the job reaches {injection['step']}")
    if injection.get("window") is not None:
        arguments.append(f"in the window {injection['window']}")
    if injection.get("overlaps"):
        arguments.append("while the one before lasts")
    if injection.get("phase", "impact") != "impact":
        arguments.append(f"in {injection['phase']}")
    return f"{injection['fault']}({', '.join(arguments)})" if arguments else str(injection["fault"])


def _drawn(drawn: dict[str, Any]) -> str:
    """Faults that the seed draws: the runs of all seeds are one cell."""
    options = {name: value for name, value in drawn.items() if value not in (None, False)}
    return f"{RANDOM}({', '.join(f'{name}={_plain(options[name])}' for name in sorted(options))})"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _experiment(folder: RunFolder) -> dict[str, Any]:
    try:
        experiment = yaml.safe_load(folder.experiment.read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise EvidenceError(f"{folder.experiment} cannot be read: {error}") from error
    if not isinstance(experiment, dict):
        raise EvidenceError(f"{folder.experiment} is not an experiment: expected a mapping, came {type(experiment).__name__}")
    return experiment


def _moments(folder: RunFolder, events: Sequence[Event]) -> tuple[datetime, datetime]:
    """When the run began, and when it gave the testbed back, or was last heard of."""
    if not events:
        raise EvidenceError(f"{folder.journal.path} is missing or empty: when the run began is not known")
    restored = next((event for event in events if isinstance(event, Restored)), events[-1])
    try:
        return datetime.fromisoformat(events[0].at), datetime.fromisoformat(restored.at)
    except (LookupError, TypeError, ValueError) as error:
        raise EvidenceError(f"{folder.journal.path} is damaged: {type(error).__name__}: {error}") from error
