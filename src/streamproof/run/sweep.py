"""The crash-point sweep: every strategy, crashed at every step of its protocol in every way, on one warm testbed.

A strategy predicts what a crash at each step shows: anomalies that it must show, and such that it may. A scenario of the matrix is as
predicted when the fault took effect, every anomaly that must be seen was seen, and none was seen that was not predicted.

Crashes of which nothing may be seen share a run, one after the other: where nothing is seen in the end, none of them has left anything.
Where something is, or one of them missed, each has a run of its own. So has every crash that may be seen.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from streamproof import settings
from streamproof.engines.spark.registry import STRATEGIES
from streamproof.engines.spark.spec import profile
from streamproof.errors import BadInput
from streamproof.evidence.folder import EvidenceError, RunFolder, write_atomically
from streamproof.experiment.model import Experiment, FaultSpec
from streamproof.faults.process.crash_at_step import find
from streamproof.jobs.failpoint import Action, Failpoint, Site
from streamproof.load.spec import Source, Workload
from streamproof.run import runner
from streamproof.run.observer import Observer
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.verdict import Verdict

RECORDS = 2400
AT = 0.3
TIMEOUT_S = 300
TOGETHER = 7
"""How many crashes share a run."""
SHARED_FROM, SHARED_UNTIL = 0.12, 0.87
"""Between which shares of the records they are spread."""
RECORDS_OF_EACH = 0.25
"""What each of them needs, as a share of what a crash in a run of its own has."""
log = logging.getLogger("streamproof.run.sweep")


@dataclass(frozen=True)
class Scenario:
    """One crash: ``strategy`` at ``step`` by ``action``, and for a double fault a second one at ``then`` while it recovers."""

    strategy: str
    step: str
    action: Action
    then: str | None = None

    @property
    def failpoint(self) -> Failpoint:
        return find(profile(self.strategy), self.step)

    @property
    def must(self) -> frozenset[Anomaly]:
        return self.failpoint.provokes

    @property
    def may(self) -> frozenset[Anomaly]:
        second = find(profile(self.strategy), self.then) if self.then else None
        return self.failpoint.allows | (second.provokes | second.allows if second else frozenset())

    @property
    def shares(self) -> bool:
        """Whether nothing may be seen of it, so that others may crash the same run."""
        return not self.must and not self.may

    def crash(self, at: float) -> FaultSpec:
        return FaultSpec(fault="crash_at_step", at=at, parameters={"step": self.step, "action": self.action, "then": self.then})

    def experiment(self, seed: int, records: int = RECORDS) -> Experiment:
        return Experiment(
            name=f"sweep-{self.strategy}-{self.step}-{self.action}{'-' + self.then if self.then else ''}".replace("_", "-")[:60],
            strategy=self.strategy,
            workload=Workload(source=Source.SYNTHETIC, records=records),
            faults=[self.crash(AT)],
            expect=sorted(self.must),
            seed=seed,
            timeout_s=TIMEOUT_S,
        )


def shared(scenarios: Sequence[Scenario], seed: int, records: int = RECORDS) -> Experiment:
    """One run with the crashes of several scenarios of one strategy, in micro-batches as large as those of a run with one."""
    spread = (SHARED_UNTIL - SHARED_FROM) / len(scenarios)
    workload = Workload(source=Source.SYNTHETIC, records=int(records * (1 + RECORDS_OF_EACH * (len(scenarios) - 1))))
    return Experiment(
        name=f"sweep-{scenarios[0].strategy}-{len(scenarios)}-crashes".replace("_", "-")[:60],
        strategy=scenarios[0].strategy,
        workload=workload,
        batch_records=scenarios[0].experiment(seed, records).micro_batch,
        faults=[one.crash(round(SHARED_FROM + spread * number, 3)) for number, one in enumerate(scenarios)],
        seed=seed,
        timeout_s=TIMEOUT_S * 3,
    )


def grouped(scenarios: Sequence[Scenario], together: int = TOGETHER) -> list[list[Scenario]]:
    """The scenarios in their order, those of a run each."""
    runs: list[list[Scenario]] = []
    for scenario in scenarios:
        last = runs[-1] if runs else []
        if last and len(last) < together and scenario.shares and last[0].shares and last[0].strategy == scenario.strategy:
            last.append(scenario)
        else:
            runs.append([scenario])
    return runs


@dataclass(frozen=True)
class Result:
    """What a scenario showed. ``torn_s`` is the longest time that a reader saw part of a batch, None where nobody watched."""

    scenario: Scenario
    outcome: str
    reason: str
    found: dict[str, int]
    as_predicted: bool
    recovery_s: float | None
    torn_s: float | None
    tries: int
    run: str

    def to_dict(self) -> dict[str, Any]:
        scenario = {**asdict(self.scenario), "at": self.scenario.failpoint.at}
        predicted = {"must": sorted(self.scenario.must), "may": sorted(self.scenario.may)}
        return {**scenario, "predicted": predicted, **{key: value for key, value in asdict(self).items() if key != "scenario"}}


def scenarios(strategies: list[str] | None = None, steps: list[str] | None = None) -> list[Scenario]:
    """The sweep's scenarios, in order. Raises BadInput for a strategy or a step that there is not."""
    names = strategies or list(STRATEGIES)
    unknown = [name for name in names if name not in STRATEGIES]
    if unknown:
        raise BadInput(f"there is no strategy {', '.join(map(repr, unknown))}; there are: {', '.join(STRATEGIES)}")
    every_scenario = [scenario for name in names for scenario in _of(name)]
    strange = set(steps or ()) - {scenario.step for scenario in every_scenario}
    if strange:
        raise BadInput(
            f"no strategy of the sweep has a step {', '.join(sorted(strange))}; their steps: {', '.join(_names(every_scenario))}"
        )
    return [scenario for scenario in every_scenario if not steps or scenario.step in steps]


def _of(name: str) -> Iterator[Scenario]:
    strategy = STRATEGIES[name]
    for point in strategy.failpoints:
        if point.at != Site.RECOVERY:
            yield from (Scenario(name, point.name, action) for action in point.actions)
    for first, then in strategy.doubles:
        yield Scenario(name, first, Action.KILL_DRIVER, then)


def _names(scenarios: list[Scenario]) -> list[str]:
    return list(dict.fromkeys(scenario.step for scenario in scenarios))


def sweep(
    scenarios: list[Scenario],
    seed: int,
    say: Callable[[Result, int, int], None],
    *,
    records: int = RECORDS,
    retries: int = 1,
    together: int = TOGETHER,
) -> tuple[list[Result], Path]:
    """Run every scenario; ``say`` gets each result with its number and how many there are. Returns the results and the matrix's folder.

    The matrix is written anew after each scenario, so that a sweep that is stopped has shown something; as a page, at the end. A
    scenario whose fault did not take effect is tried again, ``retries`` times. At most so many share a run, ``together``.
    """
    folder = settings.home() / "sweeps" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
    folder.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    for group in grouped(scenarios, together):
        for result in _results(group, seed, records, retries):
            results.append(result)
            write_atomically(folder / "matrix.json", json.dumps([done.to_dict() for done in results], indent=1))
            write_atomically(folder / "matrix.md", markdown(results))
            write_atomically(folder / "compact.md", compact(results))
            say(result, len(results), len(scenarios))
        if results[-1].outcome == RunOutcome.ABORTED:
            break
    page(list(dict.fromkeys(result.run for result in results)), folder / "matrix.html")
    return results, folder


def _results(group: Sequence[Scenario], seed: int, records: int, retries: int) -> Iterator[Result]:
    """Of each scenario: from the run that they share, where all went as predicted there, else from a run of its own."""
    if len(group) > 1:
        together = attempt_together(group, seed, records)
        if all(result.as_predicted or result.outcome == RunOutcome.ABORTED for result in together):
            yield from together
            return
        log.warning("%s: %s; each in a run of its own", group[0].strategy, together[0].reason)
    for scenario in group:
        result = attempt(scenario, seed, records)
        while result.tries <= retries and result.outcome == RunOutcome.INCONCLUSIVE:
            log.warning("%s, %s: %s; again", scenario.strategy, scenario.step, result.reason)
            result = attempt(scenario, seed + result.tries, records, result.tries + 1)
        yield result
        if result.outcome == RunOutcome.ABORTED:
            return


def page(runs: list[str], path: Path) -> None:
    """Runs as a page with links to their reports. One whose folder is damaged is left out."""
    from streamproof.history import page as history_page
    from streamproof.history import record

    rows = []
    for run in runs:
        try:
            rows.append(record.read(RunFolder(settings.runs() / run)))
        except EvidenceError as error:
            log.warning("%s", error)
    history_page.write(rows, path, settings.cache())


def attempt(scenario: Scenario, seed: int, records: int = RECORDS, tries: int = 1) -> Result:
    """One run of a scenario."""
    verdict, torn_s, run = _run(scenario.experiment(seed, records), scenario.strategy)
    return _result(scenario, verdict, verdict.recovery_s, torn_s, tries, run)


def attempt_together(group: Sequence[Scenario], seed: int, records: int = RECORDS) -> list[Result]:
    """One run with all of the scenarios, each with what its own crash cost."""
    verdict, torn_s, run = _run(shared(group, seed, records), group[0].strategy)
    costs = [injection.first_output_s for injection in verdict.injections]
    costs += [None] * (len(group) - len(costs))  # it was aborted before
    return [_result(scenario, verdict, cost_s, torn_s, 1, run) for scenario, cost_s in zip(group, costs, strict=True)]


def _run(experiment: Experiment, strategy: str) -> tuple[Verdict, float | None, str]:
    """Its verdict, the longest time that a reader saw part of a batch, and its name."""
    from streamproof.suites.evaluate import evaluate

    with Observer(STRATEGIES[strategy].atomic) as observer:
        folder = runner.run(experiment, evaluate=evaluate, watch=observer.watch)
    return Verdict.read(folder), observer.longest_torn_s(), folder.name


def _result(scenario: Scenario, verdict: Verdict, cost_s: float | None, torn_s: float | None, tries: int, run: str) -> Result:
    counts = {str(anomaly): count for anomaly, count in verdict.anomalies.items() if count}
    predicted = scenario.must <= {Anomaly(name) for name in counts} <= scenario.must | scenario.may
    right = predicted and verdict.as_expected
    return Result(scenario, verdict.outcome, verdict.reason, counts, right, cost_s, torn_s, tries, run)


def markdown(results: list[Result]) -> str:
    """The matrix as a table of Markdown."""
    head = ("strategy", "step", "by", "crash", "then", "predicted", "lost", "duplicated", "recovery", "torn for", "outcome", "as predicted")
    rows = [head, tuple("---" for _ in head)]
    rows += [columns(result) for result in results]
    return table(rows)


def table(rows: Iterable[Sequence[str]]) -> str:
    """Rows of cells as a table of Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def compact(results: list[Result]) -> str:
    """The matrix with one row a step: what each kind of crash left, and the second crashes during recovery."""
    head = ("strategy", "step", "predicted", *(action.replace("_", " ") for action in Action), "and a second crash")
    rows = [head, tuple("---" for _ in head)]
    for strategy, step in dict.fromkeys((result.scenario.strategy, result.scenario.step) for result in results):
        of_step = [result for result in results if (result.scenario.strategy, result.scenario.step) == (strategy, step)]
        first = {result.scenario.action: _left(result) for result in of_step if result.scenario.then is None}
        seconds = (f"`{result.scenario.then}`: {_left(result)}" for result in of_step if result.scenario.then is not None)
        predicted = columns(of_step[0])[5]
        rows.append((strategy, f"`{step}`", predicted, *(first.get(action, "") for action in Action), ", ".join(seconds)))
    return table(rows)


def _left(result: Result) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in result.found.items()) or "0 / 0"
    return counts if result.as_predicted else f"**{counts}, {result.outcome}**"


def columns(result: Result) -> tuple[str, ...]:
    """A result as the cells of a table's row."""
    scenario = result.scenario
    predicted = ", ".join([*(str(name) for name in sorted(scenario.must)), *(f"perhaps {name}" for name in sorted(scenario.may))])
    return (
        scenario.strategy,
        scenario.step,
        str(scenario.failpoint.at),
        scenario.action.replace("_", " "),
        scenario.then or "",
        predicted or "nothing",
        str(result.found.get(Anomaly.LOST, 0)),
        str(result.found.get(Anomaly.DUPLICATED, 0)),
        "-" if result.recovery_s is None else f"{result.recovery_s:.1f} s",
        "-" if result.torn_s is None else f"{result.torn_s:.1f} s",
        result.outcome,
        "yes" if result.as_predicted else "NO",
    )
