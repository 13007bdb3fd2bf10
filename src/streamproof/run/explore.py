"""``streamproof explore``: look for what breaks a job, as long as there is time, where nobody has looked yet.

A *situation* is what the job was at when a fault struck: which fault, after which step of the commit protocol, with which messages on their
way, in which stage of a start (:mod:`streamproof.evidence.coverage`). What to try is chosen by the situations that were not seen yet. An
*arm* is a fault with what it is aimed at: those of a sweep, two kills of which the second strikes the recovery from the first, and every
fault that chance may draw for the job, in each window. An arm is worth as many new situations as it is expected to show in a second. One
that was never tried is expected to show one for each of its strikes, or where one like it was seen already, as much as such strikes have
shown so far. One that was tried is worth less each time. So is one whose window the job seldom passes, or did not come to while others
waited for it there: a job that does several things at once passes some windows by luck, and waiting for them takes the time of many runs.
Therefore a fault is not aimed at one window alone, but at all in which it has not struck yet: the first to which the job comes is as new as
any other.

As many arms share a run as its workload has room for, and as last no longer than a run takes besides: to start a job, to judge it and to
write its report takes longer than to lose a message. At the end the faults of a run that FAILED are shrunk to the smallest schedule that
does.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from streamproof import settings
from streamproof.evidence.coverage import Coverage, Situation, Stage
from streamproof.evidence.folder import RunFolder, write_atomically
from streamproof.evidence.journal import InjectionEvidence, InjectionFailed, InjectionInjected, InjectionStarted, StageFailed, injections_of
from streamproof.experiment import random_plan
from streamproof.experiment.model import Experiment, FaultSpec, Phase
from streamproof.experiment.model import Random as RandomPlan
from streamproof.experiment.room import LATEST_IMPACT_SHARE
from streamproof.experiment.schedule import EARLIEST_AT, LEAST_STEADY, Schedule
from streamproof.faults import FAULTS
from streamproof.faults.process.window_fault import STRIKE_S
from streamproof.jobs import windows
from streamproof.jobs.failpoint import Site
from streamproof.jobs.job import Job
from streamproof.jobs.windows import Window
from streamproof.run import coverage as where_struck
from streamproof.run import shrink, window_sweep
from streamproof.run.sweep import table
from streamproof.run.window_sweep import KILL, TWIN
from streamproof.run.windows import Look
from streamproof.run.windows import look as windows_of
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.verdict import Verdict

BATCHES = 64
"""Of a run's workload, where the job's has as many records: each fault takes up a few."""
AT = 0.1
"""From which share of the records on the faults are injected, one after the other."""
TOGETHER = 16
"""The most faults of a run."""
LASTING_S = 45.0
"""How long the faults of a run are expected to last, in all, before no more are added."""
QUICK_S, KILL_S, USUAL_S = 1.0, 10.0, 5.0
"""How long a fault is taken to last that was not tried yet: one of a single message, one that kills at a window (a job that was killed must
come back to its partitions), and any other. Measured on a plain consumer: 1 s, 11 s, and 0.3 to 45 s."""
SMALLEST = 3
"""How many failures of different kinds are shrunk at the end."""
EXPLORED, SITUATIONS = "explored.json", "situations.md"
WINDOW = "window"
Key = tuple[str, str, str, tuple[str, ...]]


def experiment_for(given: Experiment, seed: int) -> Experiment:
    """The job of an experiment on a workload with room for many faults, traced, without faults."""
    return window_sweep.experiment_for(given, seed, "explore", BATCHES)


def key(situation: Situation) -> Key:
    """What makes it another one."""
    return situation.fault, situation.after, situation.stage, situation.in_flight


@dataclass
class Arm:
    """A fault and what it is aimed at; ``expected`` are the strikes that are known before, each as (after which step, stage)."""

    fault: str
    parameters: dict[str, Any]
    phase: Phase = Phase.IMPACT
    expected: tuple[tuple[str, Stage], ...] = ()
    window: str | None = None
    tries: int = 0

    @property
    def aimed(self) -> str | None:
        """The window in which it strikes, or strikes first."""
        return self.window or self.parameters.get(WINDOW)

    @property
    def group(self) -> tuple[Any, ...]:
        """What it shares with those that differ from it only by their window."""
        others = json.dumps({name: value for name, value in self.parameters.items() if name != WINDOW}, sort_keys=True)
        return self.fault, self.phase, self.window is None, others

    def spec(self, experiment: Experiment, rng: random.Random, aimed: str | None) -> FaultSpec:
        """As a run has it, ``aimed`` at these windows: with parameters that chance draws where it has none of its own."""
        own = {**self.parameters, WINDOW: aimed} if WINDOW in self.parameters else self.parameters
        parameters = own or random_plan.drawn_parameters(self.fault, experiment, rng) or {}
        trigger: dict[str, Any] = {"phase": self.phase} if self.phase is Phase.START else {"window": aimed} if self.window else {"at": AT}
        return FaultSpec(fault=self.fault, parameters=parameters, **trigger)


@dataclass(frozen=True)
class Tried:
    """A run: its faults, how it ended, the situations in which they struck, and how many of those were new."""

    run: str
    faults: tuple[str, ...]
    outcome: str
    reason: str
    situations: tuple[Situation, ...]
    new: int
    anomalies: dict[str, int]
    seconds: float


@dataclass
class Exploration:
    """All of it so far. ``seen`` says in which run each situation came first."""

    known: tuple[Window, ...]
    tried: list[Tried] = field(default_factory=list)
    seen: dict[Key, str] = field(default_factory=dict)
    hit: set[str] = field(default_factory=set)
    smallest: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> RunOutcome:
        outcomes = {tried.outcome for tried in self.tried}
        for worst in (RunOutcome.ABORTED, RunOutcome.FAILED, RunOutcome.ERROR):
            if worst in outcomes:
                return worst
        return RunOutcome.PASSED if self.known and not self.missed else RunOutcome.INCONCLUSIVE

    @property
    def missed(self) -> list[str]:
        return [window.name for window in self.known if window.name not in self.hit]

    @property
    def reason(self) -> str:
        failed = [tried for tried in self.tried if tried.outcome == RunOutcome.FAILED]
        found = f"{len(failed)} of its runs FAILED" if failed else "none of its runs FAILED"
        covered = f"killed in {len(self.known) - len(self.missed)} of {len(self.known)} windows"
        never = f"; never killed in {', '.join(self.missed)}" if self.missed else ""
        return f"{len(self.seen)} situations in {len(self.tried)} runs, {found}; {covered}{never}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "reason": self.reason,
            "windows": [window.name for window in self.known],
            "missed": self.missed,
            "situations": len(self.seen),
            "runs": [asdict(tried) for tried in self.tried],
            "smallest": self.smallest,
        }


def arms(experiment: Experiment, seen: Look) -> list[Arm]:
    """Everything that may be tried on a job of which that was seen."""
    known = seen.windows
    aimed = [_aimed(crash) for run in window_sweep.planned(experiment, seen, late=True) for crash in run]
    names = [window.name for window in known if windows.edge(window.name) is not None]
    twice = [
        Arm(KILL, {"window": first, "then": second}, expected=((_after(first), Stage.WORK), (_after(second), Stage.RECOVERY)))
        for first, second in itertools.product(names, repeat=2)
    ]
    drawn = random_plan.drawable(experiment)
    can_wait = [name for name in drawn if Site.DRIVER in FAULTS[name].sites]
    there = [Arm(name, {}, expected=((window.after, Stage.WORK),), window=window.name) for name in can_wait for window in known]
    return [*aimed, *twice, *there, *(Arm(name, {}) for name in drawn if name not in can_wait)]


def _after(window: str) -> str:
    return windows.parsed(window)[0]


def _aimed(crash: window_sweep.Crash) -> Arm:
    spec, stage = crash.spec, Stage.START if crash.phase is Phase.START else Stage.WORK
    expected = ((_after(crash.where), stage),) if crash.fault in window_sweep.AT_WINDOWS else ()
    return Arm(spec.fault, spec.parameters, crash.phase, expected)


Like = tuple[str, str, str]
"""A situation without what is on its way, which is not known before: fault, after which step, stage."""


@dataclass
class Chooser:
    """Which arms come next. The same seed and the same results give the same choice."""

    experiment: Experiment
    arms: list[Arm]
    rng: random.Random
    often: dict[str, float] = field(default_factory=dict)
    """How often the job passes each window, as a share of how often it passes the one that it passes most."""
    lasted_s: dict[str, list[float]] = field(default_factory=dict)
    """How long each fault lasted, from its aim to its evidence."""
    reached: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    """How often a fault that was aimed at a window struck there, and how often the job did not come there in time."""
    again: int = 0
    new_again: int = 0
    """How many strikes were like one that was seen before, and how many of those showed something new all the same."""

    def next(self, seen: Iterable[Key]) -> list[tuple[Arm, FaultSpec]]:
        """The arms of a run, with their faults: those that are worth most, as long as there is room for them."""
        before = {known[:3] for known in seen}
        tried = set(before)
        room = self.experiment.room
        left, lasting_s = LATEST_IMPACT_SHARE - AT - LEAST_STEADY, 0.0
        open_arms, chosen = self.rng.sample(self.arms, len(self.arms)), list[tuple[Arm, FaultSpec]]()
        while open_arms and len(chosen) < TOGETHER and lasting_s < LASTING_S:
            arm = max(open_arms, key=lambda arm: self._worth(arm, tried))
            open_arms.remove(arm)
            if arm.phase is Phase.START and any(other.phase is Phase.START for other, _ in chosen):
                continue
            spec = arm.spec(self.experiment, self.rng, self._aim(arm, before))
            begins_late = all(other.at is None for other in (spec, *(other for _, other in chosen)))  # see schedule.plan
            if (needed := room.share(spec.fault, spec.parameters)) <= left - begins_late * (EARLIEST_AT - AT):
                chosen.append((arm, spec))
                tried |= set(_likes(arm))
                left -= needed
                lasting_s += self._lasts_s(arm)
        return sorted(chosen, key=lambda one: (one[0].phase is not Phase.START, one[1].at is None))

    def _aim(self, arm: Arm, before: set[Like]) -> str | None:
        """The window of the arm, and the others in which its fault could strike as well, and has not yet."""
        if arm.aimed is None or arm.fault == TWIN:
            return arm.aimed
        names = [arm.aimed]
        for other in self.arms:
            new = other.group == arm.group and other.aimed not in names and not set(_likes(other)) <= before
            if new and windows.never_together([*names, str(other.aimed)]) is None:
                names.append(str(other.aimed))
        return windows.OR.join(names)

    def _worth(self, arm: Arm, tried: set[Like]) -> float:
        """New situations that it is expected to show in a second."""
        like_one_seen = (self.new_again + 1) / (self.again + 3)
        likes = _likes(arm) or [(arm.fault, "", "")]  # where it will strike is not known
        expected = sum(like_one_seen if like in tried else 1.0 for like in likes) * like_one_seen**arm.tries
        return expected * self._comes_there(arm) / (1.0 + self._lasts_s(arm))

    def _lasts_s(self, arm: Arm) -> float:
        """How long it is expected to take, as long as such a fault took so far, or as it waits for a window in vain."""
        usual = QUICK_S if arm.fault in window_sweep.OF_ONE_MESSAGE else KILL_S if arm.fault in window_sweep.AT_WINDOWS else USUAL_S
        lasted_s = self.lasted_s.get(arm.fault, [usual])
        return sum(lasted_s) / len(lasted_s) + (1.0 - self._comes_there(arm)) * STRIKE_S

    def _comes_there(self, arm: Arm) -> float:
        """How likely the job comes to where the arm is aimed: at first, as often as it came there while nothing was broken."""
        return math.prod(
            (self.reached[name] + self.often.get(name, 1.0)) / (self.reached[name] + self.missed[name] + 1)
            for name in _aimed_at(arm.window, arm.parameters)
        )

    def learn(self, folder: RunFolder, chosen: Sequence[tuple[Arm, FaultSpec]], struck: Sequence[Situation], before: Iterable[Key]) -> None:
        """What a run has shown: how long its faults lasted, and what strikes are worth that are like one ``before``."""
        begun = {event.injection: event for event in folder.journal.all(InjectionStarted)}
        shown = folder.journal.all(InjectionEvidence)
        ends = {event.injection: event.at for event in shown if event.injection in begun}
        if begun and (broke := folder.journal.last(StageFailed)) is not None:  # the last of them outlasted the run
            ends[list(begun)[-1]] = broke.at
        for name, end in ends.items():
            lasted = datetime.fromisoformat(end) - datetime.fromisoformat(begun[name].at)
            self.lasted_s.setdefault(begun[name].fault, []).append(lasted.total_seconds())
        strikes = {event.injection: windows.strikes(event.target) for event in folder.journal.all(InjectionInjected)}
        self.reached.update(strike.window for struck_at in strikes.values() for strike in struck_at)
        failed = {event.injection for event in folder.journal.all(InjectionFailed)}
        for injection in Schedule.read(folder).injections:
            if injection.injection in failed:
                self.missed.update(_aimed_at(injection.window, injection.parameters))
        known = set(before)
        likes = {one[:3] for one in known}
        for situation in struck:
            if key(situation)[:3] in likes:
                self.again += 1
                self.new_again += key(situation) not in known
        for name, (arm, _) in zip(injections_of(arm.fault for arm, _ in chosen), chosen, strict=True):
            at = strikes[name][0].window if strikes.get(name) else arm.aimed
            for other in self.arms:
                other.tries += other.group == arm.group and other.aimed == at


def _aimed_at(trigger: str | None, parameters: Mapping[str, Any]) -> list[str]:
    """The windows to which the job must come for a fault with that trigger."""
    given = [name for name in (trigger, parameters.get(WINDOW), parameters.get("then")) if name is not None]
    return [name for names in given for name in windows.alternatives(names)]


def _likes(arm: Arm) -> list[Like]:
    """The strikes that are expected of an arm."""
    return [(arm.fault, after, stage) for after, stage in arm.expected]


def explore(
    experiment: Experiment,
    minutes: float,
    look: Callable[[Sequence[Window]], None],
    say: Callable[[Tried, Exploration], None],
    *,
    chance: bool,
) -> tuple[Exploration, Path]:
    """Try until the time is over, which begins once the windows are known; then shrink what failed. Returns it with its folder. With
    ``chance`` the faults of each run are drawn at random, as a measure of what is gained by choosing.

    Raises BadInput when the run without faults does not go well.
    """
    found = windows_of(experiment)
    known = found.windows
    look(known)
    folder = settings.home() / "explorations" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{experiment.name}"
    folder.mkdir(parents=True)
    rng = random.Random(f"explore:{experiment.seed}")
    most = max((window.seen for window in known), default=1)
    often = {window.name: window.seen / most for window in known}
    exploration, chooser = Exploration(known), Chooser(experiment, arms(experiment, found), rng, often)
    until = time.monotonic() + 60 * minutes
    while (exploration.outcome is not RunOutcome.ABORTED and time.monotonic() < until) or not exploration.tried:
        chosen = [] if chance else chooser.next(exploration.seen)
        begun = time.monotonic()
        ran = _run(experiment, len(exploration.tried), [spec for _, spec in chosen])
        coverage = _coverage(ran)
        before = set(exploration.seen)
        exploration.seen.update((key(one), ran.name) for one in coverage.situations if key(one) not in before)
        exploration.hit |= set(coverage.hit.values())
        exploration.tried.append(_tried(ran, coverage, len(exploration.seen) - len(before), round(time.monotonic() - begun, 1)))
        chooser.learn(ran, chosen, coverage.situations, before)
        write(folder, exploration)
        say(exploration.tried[-1], exploration)
    return exploration, folder


def _run(experiment: Experiment, number: int, specs: Sequence[FaultSpec]) -> RunFolder:
    if specs:
        return window_sweep.run_with(experiment, faults=[spec.model_dump(mode="json") for spec in specs])
    return window_sweep.run_with(experiment, random=RandomPlan(count=_fitting(experiment)), seed=experiment.seed + number)


def _coverage(folder: RunFolder) -> Coverage:
    """Where its faults struck, also where the run broke before it came to say so."""
    if folder.messages.exists() and not folder.windows.exists():
        where_struck.write(folder, Job.read(folder))
    return Coverage.read(folder) or Coverage((), {})


def _fitting(experiment: Experiment) -> int:
    """How many faults a run has room for, whichever chance draws."""
    room, rng = experiment.room, random.Random(0)
    drawn = {name: random_plan.drawn_parameters(name, experiment, rng) or {} for name in random_plan.drawable(experiment)}
    most = max((room.share(name, parameters) for name, parameters in drawn.items()), default=1.0)
    return max(1, min(TOGETHER, int((LATEST_IMPACT_SHARE - random_plan.FIRST_AT) / (most + room.quiet_share))))


def _tried(folder: RunFolder, coverage: Coverage, new: int, seconds: float) -> Tried:
    verdict = Verdict.read(folder)
    faults = tuple(injection.fault for injection in verdict.injections)
    return Tried(folder.name, faults, verdict.outcome, verdict.reason, coverage.situations, new, verdict.broken, seconds)


def failures(exploration: Exploration) -> list[Tried]:
    """Of the runs that FAILED those to be shrunk: of each kind of failure, the one with the fewest faults."""
    kinds: dict[frozenset[Anomaly | str], Tried] = {}
    for tried in sorted((one for one in exploration.tried if one.outcome == RunOutcome.FAILED), key=lambda one: len(one.faults)):
        kinds.setdefault(frozenset(tried.anomalies), tried)
    return list(kinds.values())[:SMALLEST]


def smallest(exploration: Exploration, folder: Path, tried: Tried, say: Callable[[shrink.Try], None]) -> Path:
    """The smallest schedule that fails as a run did, as a file. Raises ``shrink.Stopped`` when a try is aborted."""
    subject = shrink.subject(RunFolder.open(settings.runs() / tried.run))
    _, _, shrunk = shrink.shrink(subject, say)
    file = shrunk / shrink.SMALLEST
    exploration.smallest.append(str(file))
    write(folder, exploration)
    return file


def write(folder: Path, exploration: Exploration) -> None:
    """All of it as JSON, and the situations as a table in Markdown."""
    head = ["fault", "after", "on its way", "stage", "first in"]
    rows = [[fault, f"`{after}`", ", ".join(flying), stage, run] for (fault, after, stage, flying), run in sorted(exploration.seen.items())]
    told = table([head, ["---"] * len(head), *rows])
    write_atomically(folder / SITUATIONS, f"{exploration.outcome}: {exploration.reason}\n\n{told}")
    write_atomically(folder / EXPLORED, json.dumps(exploration.to_dict(), indent=1))
