"""The smallest schedule that still fails: a run that FAILED is run again with ever fewer of its faults, same seed, same moments.

Delta debugging (Zeller's ddmin, over the list of injections): the faults are cut into parts, each part is tried alone and then the rest
without it; what still fails is gone on with, and when nothing does the parts are made smaller, down to single faults. First of all it is
tried without any fault. The end is a schedule from which no single fault can be taken away.

A try fails in the same way when its run is FAILED and shows every forbidden anomaly that the first one showed. Each schedule is tried once,
and once more when its run was not conclusive: where failing is a matter of chance, a try that passed proves little.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from streamproof import settings
from streamproof.errors import BadInput
from streamproof.evidence.folder import RunFolder, write_atomically
from streamproof.experiment import overlap
from streamproof.experiment.model import Experiment, Phase
from streamproof.experiment.schedule import Injection, Schedule
from streamproof.run import runner, stages
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.verdict import Verdict

RETRIES = 1
SMALLEST = "smallest.yaml"
Item = TypeVar("Item")
log = logging.getLogger("streamproof.run.shrink")


class Stopped(Exception):
    """A try was aborted, and the search with it."""


@dataclass(frozen=True)
class Subject:
    """A run that failed: its experiment, what was injected, and the forbidden anomalies that it showed."""

    experiment: Experiment
    injections: tuple[Injection, ...]
    kinds: frozenset[Anomaly]


@dataclass(frozen=True)
class Try:
    """A smaller schedule, and how its run ended. ``folders`` has one entry a run, the last of which counts."""

    injections: tuple[str, ...]
    outcome: str
    reason: str
    fails: bool
    folders: tuple[str, ...]


def subject(folder: RunFolder) -> Subject:
    """What is to be shrunk. Raises BadInput when the run did not fail, or had no faults."""
    verdict, experiment = Verdict.read(folder), stages.load(folder)
    if verdict.outcome is not RunOutcome.FAILED:
        raise BadInput(f"run {folder.name} is {verdict.outcome}, not FAILED: there is no failure whose faults could be looked for")
    injections = Schedule.read(folder).injections
    if not injections:
        raise BadInput(f"run {folder.name} failed without a fault: there is nothing to leave out")
    return Subject(experiment, injections, _forbidden(experiment, verdict))


def _forbidden(experiment: Experiment, verdict: Verdict) -> frozenset[Anomaly]:
    """The anomalies of a run that it was not to show."""
    shown = {anomaly for anomaly, count in verdict.anomalies.items() if count}
    return frozenset(shown & experiment.forbidden)


def reduced(experiment: Experiment, injections: Sequence[Injection], kept: Sequence[Injection], name: str = "smaller") -> Experiment:
    """The same experiment with the faults of ``kept`` only, each with the trigger that it had.

    Where the first of some that overlap is left out, the next takes its moment.
    """
    specs = []
    for group in overlap.groups(injections):
        for number, injection in enumerate(each for each in group if each in kept):
            overlaps = number > 0
            common = {"fault": injection.fault, "parameters": injection.parameters, "overlaps": overlaps, "phase": injection.phase}
            specs.append({**common, **_trigger(replace(injection, overlaps=overlaps, at=group[0].at, batch=group[0].batch))})
    fields = {
        "name": f"{experiment.name[: 59 - len(name)]}-{name}",
        "faults": specs,
        "random": None,
        "quiet": experiment.quiet_between,
        "batch_records": experiment.micro_batch,
        "expect": [],  # what a smaller schedule need not show any more
    }
    return Experiment.model_validate({**experiment.model_dump(), **fields})


def _trigger(injection: Injection) -> dict[str, Any]:
    """What an experiment has to say so that the injection happens when it does."""
    if injection.step is not None:
        return {"step": injection.step}
    if injection.window is not None:
        return {"window": injection.window}
    if injection.overlaps or injection.phase is not Phase.IMPACT:
        return {}
    return {"at": injection.at} if injection.batch is None else {"batch": injection.batch}


def smallest(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> Sequence[Item]:
    """A part of ``items`` that fails, and does not without any one of its items. All of them are taken to fail; nothing is asked twice."""
    results: dict[tuple[int, ...], bool] = {}

    def failing(indices: Sequence[int]) -> bool:
        key = tuple(indices)
        if key not in results:
            results[key] = fails([items[index] for index in key])
        return results[key]

    if failing(()):
        return []
    left, count = list(range(len(items))), 2
    while len(left) > 1:
        parts = [left[len(left) * number // count : len(left) * (number + 1) // count] for number in range(count)]
        part = next(filter(failing, parts), None)
        rest = next(filter(failing, ([index for index in left if index not in part] for part in parts)), None) if part is None else None
        if part is not None:
            left, count = part, 2
        elif rest is not None:
            left, count = rest, max(count - 1, 2)
        elif count < len(left):
            count = min(len(left), 2 * count)
        else:
            break
    return [items[index] for index in left]


def tries(subject: Subject) -> list[tuple[str, ...]]:
    """What would be tried, in this order, as long as nothing fails; one that does is gone on with instead."""
    listed: list[tuple[str, ...]] = []

    def passes(kept: Sequence[Injection]) -> bool:
        listed.append(tuple(injection.injection for injection in kept))
        return False

    smallest(subject.injections, passes)
    return listed


def shrink(subject: Subject, say: Callable[[Try], None]) -> tuple[Experiment, list[Try], Path]:
    """Look for the smallest schedule. Returns it as an experiment, all tries, and the folder that holds both (``smallest.yaml``,
    ``tries.json``). ``say`` gets each try as it ends. Raises Stopped when one is aborted."""
    folder = settings.home() / "shrinks" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
    folder.mkdir(parents=True, exist_ok=True)
    attempts: list[Try] = []

    def fails(kept: Sequence[Injection]) -> bool:
        attempts.append(attempt(subject, kept))
        write_atomically(folder / "tries.json", json.dumps([asdict(tried) for tried in attempts], indent=1))
        say(attempts[-1])
        return attempts[-1].fails

    kept = smallest(subject.injections, fails)
    result = reduced(subject.experiment, subject.injections, kept, "smallest")
    write_atomically(folder / SMALLEST, result.to_yaml())
    return result, attempts, folder


def attempt(subject: Subject, kept: Sequence[Injection]) -> Try:
    """One smaller schedule, run."""
    from streamproof.suites.evaluate import evaluate

    folders: list[str] = []
    while True:
        folder = runner.run(reduced(subject.experiment, subject.injections, kept), evaluate=evaluate)
        verdict = Verdict.read(folder)
        folders.append(str(folder.path))
        if verdict.outcome is RunOutcome.ABORTED:
            raise Stopped(verdict.reason)
        if verdict.outcome in (RunOutcome.PASSED, RunOutcome.FAILED) or len(folders) > RETRIES:
            break
        log.warning("%s; again", verdict.reason)
    fails = verdict.outcome is RunOutcome.FAILED and subject.kinds <= _forbidden(subject.experiment, verdict)
    return Try(tuple(injection.injection for injection in kept), verdict.outcome, verdict.reason, fails, tuple(folders))
