"""A nightly run: the scenarios of a matrix, run one after the other, and what changed since earlier nightly runs.

A nightly run is a folder, as a run is. ``plan.json`` holds the matrix as it was at the beginning, and when the time is over;
``scenarios/N.json`` names the run of scenario N and is written before that run begins, or says why there is none; ``summary.json``,
``junit.xml`` and ``history.html`` come last and may be written again.

The state of a scenario is what :mod:`streamproof.history.changes` finds in its runs with the same seed, tonight's being the newest, or
one of

    not run      the nightly run's time was over before its turn, or its turn never came
    stopped      its run is ABORTED
    unfinished   it began, and has no verdict, or one that its task did not live to tell

A nightly run is *red* when a scenario is not as expected: its outcome is not PASSED (a negative control that was caught PASSED), or it
has no outcome. A scenario that was not run is not as expected. One that is not red is INCONCLUSIVE when a job whose messages were read was
never killed in one of its windows, in no night so far. Slow, flaky and fixed scenarios that PASSED are reported, and do not make
the nightly run red.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from streamproof import settings
from streamproof.evidence.folder import EvidenceError, RunFolder, utc_now, write_atomically
from streamproof.evidence.journal import Restored
from streamproof.experiment import matrix
from streamproof.experiment.matrix import Matrix, Scenario
from streamproof.history import junit, page, record
from streamproof.history.changes import Change, Kind, change
from streamproof.history.matrix import Coverage, coverage
from streamproof.history.record import Run
from streamproof.history.store import Store, Wanted
from streamproof.run import recording as remembered
from streamproof.run import stages
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.verdict import Verdict

NOT_RUN, STOPPED, UNFINISHED = "not run", "stopped", "unfinished"
QUIET = (Kind.NEW, Kind.STABLE)
ORDER = (Kind.NEWLY_BROKEN, UNFINISHED, Kind.NOT_SHOWN, STOPPED, Kind.FLAKY, Kind.STILL_BROKEN, NOT_RUN, Kind.SLOWER, Kind.FIXED, *QUIET)


@dataclass(frozen=True)
class ScenarioResult:
    """The result of one scenario of a nightly run. ``run`` and ``outcome`` are None where there was no run, or no verdict."""

    number: int
    strategy: str
    fault: str
    seed: int
    scenario: str
    run: str | None
    outcome: str | None
    as_expected: bool
    state: str
    reason: str

    @property
    def line(self) -> str:
        return f"{self.state}: {self.scenario}, seed {self.seed}: {self.reason}"


@dataclass(frozen=True)
class Summary:
    """A nightly run in one object, the worst scenario first."""

    nightly_run: str
    folder: str
    began_at: str
    ended_at: str
    scenarios: tuple[ScenarioResult, ...]
    windows: tuple[str, ...] = ()
    """For each job whose windows were seen tonight: in how many of them it was killed, tonight or before, and which were missed."""
    unproved: tuple[str, ...] = ()
    """The jobs of which some were missed."""

    @property
    def red(self) -> bool:
        return not all(scenario.as_expected for scenario in self.scenarios)

    @property
    def outcome(self) -> RunOutcome:
        """INCONCLUSIVE when all is as expected, and a job was never killed in one of its windows: nothing is proved of it there."""
        return RunOutcome.FAILED if self.red else RunOutcome.INCONCLUSIVE if self.unproved else RunOutcome.PASSED

    @property
    def news(self) -> tuple[ScenarioResult, ...]:
        """The results that are worth a message."""
        return tuple(scenario for scenario in self.scenarios if not scenario.as_expected or scenario.state not in QUIET)

    @property
    def headline(self) -> str:
        good = sum(scenario.as_expected for scenario in self.scenarios)
        counts = Counter(scenario.state for scenario in self.scenarios)
        states = ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])
        unproved = f"; INCONCLUSIVE: windows were missed of {', '.join(self.unproved)}" if self.unproved else ""
        return f"{good} of {len(self.scenarios)} scenarios as expected: {states}{unproved}"

    @property
    def text(self) -> str:
        return "\n".join([self.headline, *(scenario.line for scenario in self.news), *self.windows])

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "red": self.red, "outcome": self.outcome, "headline": self.headline}


@dataclass(frozen=True)
class NightlyRun:
    """One nightly run, by its folder."""

    path: Path

    @classmethod
    def named(cls, name: str) -> Self:
        return cls(settings.home() / "nightly" / name)

    @property
    def name(self) -> str:
        return self.path.name

    # --- its scenarios ------------------------------------------------------------------------------------------------------------------

    def plan(self, file: Path) -> list[Scenario]:
        """Begin the nightly run with the matrix in ``file``. Raises BadInput when it cannot be run, before anything is."""
        planned = matrix.load(file)
        content = {
            "file": str(file),
            "began_at": utc_now(),
            "over_at": time.time() + planned.quota.nightly_run_s,
            "matrix": planned.model_dump(mode="json"),
        }
        write_atomically(self.path / "plan.json", json.dumps(content, indent=1))
        for leftover in [*(self.path / "scenarios").glob("*.json"), self.path / "summary.json"]:
            leftover.unlink(missing_ok=True)
        return planned.scenarios

    def scenarios(self) -> list[Scenario]:
        return Matrix.model_validate(self._plan()["matrix"]).scenarios

    def scenario(self, number: int) -> Scenario:
        return self.scenarios()[number - 1]

    def over(self) -> bool:
        """Whether its time is used up."""
        return time.time() > float(self._plan()["over_at"])

    def run(self, scenario: Scenario, attempt: int) -> str:
        """The name of a scenario's run. Each attempt is a run of its own."""
        return f"{self.name}-{scenario.name}" if attempt == 1 else f"{self.name}-{scenario.name}-try{attempt}"

    def begin(self, scenario: Scenario, run: str) -> None:
        """The scenario's run is about to begin."""
        self._write_entry(scenario, run=run)

    def end(self, scenario: Scenario, run: str) -> None:
        """The scenario's run has come to its end, and so has whoever carried it."""
        self._write_entry(scenario, run=run, ended=utc_now())

    def leave(self, scenario: Scenario, reason: str) -> None:
        """The scenario is not run."""
        self._write_entry(scenario, reason=reason)

    def verdict(self, number: int) -> Verdict | None:
        """The verdict on a scenario; None when there is none, or it was stopped, which says nothing of the job."""
        run = self._entry(self.scenario(number)).get("run")
        folder = RunFolder(settings.runs() / run) if run is not None else None
        if folder is None or not folder.verdict.exists():
            return None
        verdict = Verdict.read(folder)
        return None if verdict.outcome is RunOutcome.ABORTED else verdict

    def _write_entry(self, scenario: Scenario, **entry: str) -> None:
        (self.path / "summary.json").unlink(missing_ok=True)  # it is not what the nightly run ends with any more
        write_atomically(self.path / "scenarios" / f"{scenario.number}.json", json.dumps(entry))

    def _entry(self, scenario: Scenario) -> dict[str, str]:
        try:
            return dict(json.loads((self.path / "scenarios" / f"{scenario.number}.json").read_text()))
        except FileNotFoundError:
            return {"reason": "its turn did not come"}

    def _plan(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.path / "plan.json").read_text()))
        except FileNotFoundError as error:
            raise EvidenceError(f"{self.path} is not a nightly run: it has no plan.json") from error

    # --- its end --------------------------------------------------------------------------------------------------------------------

    def summarise(self) -> Summary:
        """Compare with earlier nightly runs; write ``summary.json``, ``junit.xml`` and ``history.html``.

        The run of a scenario whose process was killed is restored here. Raises HistoryError when the history cannot be read.
        """
        (self.path / "summary.json").unlink(missing_ok=True)
        entries = [(scenario, self._entry(scenario)) for scenario in self.scenarios()]
        for _, entry in entries:
            _end(entry.get("run"))
        with remembered.opened() as store:
            results = [_result(store, scenario, entry) for scenario, entry in entries]
            runs = store.runs()
        runs_of_tonight = [run for _, run in results if run is not None]
        scenarios = tuple(
            sorted((scenario for scenario, _ in results), key=lambda scenario: (ORDER.index(scenario.state), scenario.number))
        )
        covered = _covered(runs_of_tonight, runs)
        told = tuple(
            f"{job}: {found}" + (f", never in {', '.join(found.missed)}" if found.missed else "") for job, found in covered.items()
        )
        unproved = tuple(job for job, found in covered.items() if found.missed)
        summary = Summary(self.name, str(self.path), self._plan()["began_at"], utc_now(), scenarios, told, unproved)
        left = [
            (scenario.strategy, f"{scenario.fault}, seed {scenario.seed}", scenario.reason)
            for scenario in scenarios
            if scenario.run is None or scenario.outcome is None
        ]
        write_atomically(self.path / "junit.xml", junit.junit(runs_of_tonight, left))
        of_same_cells = [run for run in runs if run.cell in {run.cell for run in runs_of_tonight}]
        page.write(of_same_cells, self.path / "history.html", settings.cache())
        write_atomically(self.path / "summary.json", json.dumps(summary.to_dict(), indent=1))
        return summary

    def summary(self) -> Summary | None:
        """What :meth:`summarise` wrote; None when it did not come to its end."""
        try:
            stored = json.loads((self.path / "summary.json").read_text())
        except FileNotFoundError:
            return None
        names = ("nightly_run", "folder", "began_at", "ended_at")
        scenarios = tuple(ScenarioResult(**fields) for fields in stored["scenarios"])
        windows, unproved = (tuple(stored.get(name, ())) for name in ("windows", "unproved"))
        return Summary(**{name: stored[name] for name in names}, scenarios=scenarios, windows=windows, unproved=unproved)


def _covered(tonight: Sequence[Run], ever: Sequence[Run]) -> dict[str, Coverage]:
    """By job the windows that were seen tonight, and those of them in which it was killed, tonight or in any run before."""
    found: dict[str, Coverage] = {}
    for job in dict.fromkeys(run.strategy for run in tonight):
        seen = coverage(run for run in tonight if run.strategy == job)
        if seen is not None:
            found[job] = replace(seen, hit=seen.hit.union(*(run.windows_hit for run in ever if run.strategy == job)))
    return found


def _end(name: str | None) -> None:
    """See that a run has ended: abort one that nobody carries any more. One that is restored already is left as it is."""
    if name is None or not (folder := RunFolder(settings.runs() / name)).experiment.is_file():
        return
    if folder.journal.last(Restored) is None or not folder.verdict.exists():
        stages.abort(folder, "its task ended before the run did")


def _result(store: Store, scenario: Scenario, entry: dict[str, str]) -> tuple[ScenarioResult, Run | None]:
    experiment, name = scenario.experiment, entry.get("run")
    unfinished = ScenarioResult(
        number=scenario.number,
        strategy=experiment.label,
        fault=scenario.fault,
        seed=experiment.seed,
        scenario=f"{experiment.label} ({experiment.promised}) x {scenario.fault}",
        run=name,
        outcome=None,
        as_expected=False,
        state=NOT_RUN if name is None else UNFINISHED,
        reason=entry.get("reason", ""),
    )
    if name is None:
        return unfinished, None
    try:
        run = record.read(RunFolder(settings.runs() / name))
    except EvidenceError as error:
        return replace(unfinished, reason=str(error)), None
    change_seen = _change(store, run)
    state, reason = (
        (STOPPED, run.reason) if run.outcome is RunOutcome.ABORTED or change_seen is None else (str(change_seen.kind), change_seen.reason)
    )
    expected = run.outcome is RunOutcome.PASSED and "ended" in entry
    if run.outcome is RunOutcome.PASSED and not expected:
        state, reason = UNFINISHED, "its run PASSED, but its task did not come to its end"
    return replace(unfinished, scenario=str(run.cell), outcome=run.outcome, as_expected=expected, state=state, reason=reason), run


def _change(store: Store, run: Run) -> Change | None:
    """What ``run`` changed beside the earlier runs of its scenario with its seed."""
    earlier = [other for other in store.runs(Wanted(cell=run.cell)) if other.seed == run.seed and other.began_at < run.began_at]
    return change([*reversed(earlier), run])


__all__ = ["NightlyRun", "ScenarioResult", "Summary"]
