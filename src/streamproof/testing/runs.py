"""What a test does: run an experiment, and assert what the job delivered.

A guarantee that is asserted is decided by the same rules as any verdict (``streamproof.verdict.decide``): the records of the run are held
to the asserted guarantee instead of to what the job promises. A run that shows nothing (no evidence that the fault took effect, nothing
delivered after it, an unfinished drain) does not keep a guarantee. One that was killed in some of its job's windows does not prove one:
that is what a sweep is for.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from streamproof import settings
from streamproof.evidence.folder import RunFolder
from streamproof.experiment import model
from streamproof.experiment.model import Experiment
from streamproof.experiment.reading import parse
from streamproof.jobs.windows import Window
from streamproof.run import lock, runner, window_sweep
from streamproof.run.window_sweep import Result, Sweep
from streamproof.verdict.decide import Decision, RunOutcome, decide
from streamproof.verdict.guarantee import Guarantee, Promise, forbidden
from streamproof.verdict.verdict import Verdict, ending

WAIT_S = 1800.0
SHOWN_RECORDS = 10
log = logging.getLogger("streamproof.testing")


class Experiments:
    """Runs experiments, one at a time: who runs beside it, in this session or another, is waited for."""

    def __init__(self, properties: list[tuple[str, object]], seed: int | None = None) -> None:
        self._properties, self._seed = properties, seed

    def run(
        self, experiment: str | Path | dict[str, Any] | Experiment, *, faults: Sequence[str | dict[str, Any]] | None = None, **changes: Any
    ) -> JudgedRun:
        """Run an experiment: a YAML file, or what one would hold. ``faults`` (names, or mappings as in the file) and other ``changes``
        take the place of what the experiment says. Raises BadInput when it cannot be planned."""
        planned = _experiment(experiment, faults, self._seed, changes)
        run = JudgedRun(_when_free(planned))
        verdict = run.verdict
        self._properties += [
            ("streamproof_run", str(run.folder.path)),
            ("streamproof_outcome", str(verdict.outcome)),
            ("streamproof_seed", planned.seed),
        ]
        return run

    def sweep(self, experiment: str | Path | dict[str, Any] | Experiment, **changes: Any) -> JudgedSweep:
        """Break the job of an experiment in each of its windows (``docs/windows.md``), until a fault breaks it. ``changes`` take the place
        of what the experiment says. Takes minutes. Raises BadInput when it cannot be planned, or when the job does not go well without
        faults."""
        given = _experiment(experiment, [], self._seed, changes)
        planned = window_sweep.experiment_for(given, given.seed)
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{planned.name}"
        with lock.turn(name, WAIT_S, log.info):
            swept = window_sweep.sweep(planned, _look, _say)
        folder = settings.home() / "sweeps" / name
        window_sweep.write(folder, swept)
        self._properties += [("streamproof_sweep", str(folder)), ("streamproof_outcome", str(swept.outcome))]
        return JudgedSweep(swept, planned, folder)


class JudgedSweep:
    """A sweep of a job with what it found. The assertions raise AssertionError with the reason: which fault broke the job, and where, or
    which window was never hit."""

    def __init__(self, sweep: Sweep, experiment: Experiment, folder: Path) -> None:
        self.sweep, self.folder, self._experiment = sweep, folder, experiment

    @property
    def outcome(self) -> RunOutcome:
        return self.sweep.outcome

    def assert_passed(self) -> None:
        """The job kept what it promises when it was broken in each of its windows."""
        __tracebackhide__ = True
        if self.outcome is not RunOutcome.PASSED:
            raise AssertionError(f"{self.outcome}: {self.sweep.reason}\ntable: {self.folder / window_sweep.TABLE}")

    def assert_exactly_once(self, *promises: str) -> None:
        """No record was lost, none was delivered twice, and none counted as done before it was delivered, in any window."""
        __tracebackhide__ = True
        self._assert_guarantee(Guarantee.EXACTLY_ONCE, promises)

    def assert_at_least_once(self, *promises: str) -> None:
        """No record was lost, and none counted as done before it was delivered, in any window."""
        __tracebackhide__ = True
        self._assert_guarantee(Guarantee.AT_LEAST_ONCE, promises)

    def assert_at_most_once(self, *promises: str) -> None:
        """No record was delivered twice, in any window."""
        __tracebackhide__ = True
        self._assert_guarantee(Guarantee.AT_MOST_ONCE, promises)

    def _assert_guarantee(self, guarantee: Guarantee, promises: Sequence[str]) -> None:
        __tracebackhide__ = True
        asked = {Promise(promise) for promise in promises}
        if unasked := forbidden(guarantee, asked, self._experiment.of_results) - self._experiment.forbidden:
            raise AssertionError(
                f"{', '.join([guarantee, *sorted(asked)])} was not judged in this sweep, which allowed {', '.join(sorted(unasked))}: the "
                f"job was held to {self._experiment.promised}. Sweep it with `guarantee=...`, or let it promise more"
            )
        self.assert_passed()


class JudgedRun:
    """A run with its verdict. The assertions raise AssertionError with the reason, the blame of the first anomalous records, and where the
    report is."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    @cached_property
    def verdict(self) -> Verdict:
        return Verdict.read(self.folder)

    @property
    def outcome(self) -> RunOutcome:
        return self.verdict.outcome

    @property
    def report(self) -> Path:
        return self.folder.report

    def assert_passed(self) -> None:
        """The job kept what it promises, and the faults took effect."""
        __tracebackhide__ = True
        self._assert(Decision(self.verdict.outcome, self.verdict.reason))

    def assert_exactly_once(self, *promises: str) -> None:
        """No record was lost, none was delivered twice, and none counted as done before it was delivered. ``promises`` are more that is to
        be held: ``ordered``, ``atomic``. Where the run saw windows of the job, it must have been killed in each of them."""
        __tracebackhide__ = True
        self._assert_guarantee(Guarantee.EXACTLY_ONCE, promises)

    def assert_at_least_once(self, *promises: str) -> None:
        """No record was lost, and none counted as done before it was delivered. Windows as above."""
        __tracebackhide__ = True
        self._assert_guarantee(Guarantee.AT_LEAST_ONCE, promises)

    def assert_at_most_once(self, *promises: str) -> None:
        """No record was delivered twice."""
        __tracebackhide__ = True
        self._assert_guarantee(Guarantee.AT_MOST_ONCE, promises)

    def _assert_guarantee(self, guarantee: Guarantee, promises: Sequence[str]) -> None:
        __tracebackhide__ = True
        asked = {Promise(promise) for promise in promises}
        banned = sorted(forbidden(guarantee, asked, self.verdict.results is not None))
        if unasked := [anomaly for anomaly in banned if anomaly not in self.verdict.anomalies]:
            raise AssertionError(
                f"{', '.join([guarantee, *sorted(asked)])} was not judged in this run: nobody looked for {', '.join(unasked)}, "
                "which the job does not promise to avoid. Let the experiment say what is to hold: `guarantee`, or `promises` and "
                "`also_promises` of its job"
            )
        held_to = {"guarantee": guarantee, "promises": tuple(sorted(asked)), "forbidden": tuple(banned), "expected_anomalies": ()}
        self._assert(decide(self.verdict.model_copy(update=held_to).facts(ending(self.folder, self.verdict))))
        if (windows := self.verdict.windows) is not None and (missed := windows.missed):
            killed = f"killed in {len(windows.known) - len(missed)} of {len(windows.known)} windows, never in {', '.join(missed)}"
            raise AssertionError(
                f"INCONCLUSIVE: {guarantee} was kept, but this run does not prove it: {killed}. `streamproof.sweep(...)` kills the job in "
                f"each of them; `run.assert_passed()` asks for no more than what this run shows\nreport: {self.report}"
            )

    def _assert(self, decision: Decision) -> None:
        __tracebackhide__ = True
        if decision.outcome is not RunOutcome.PASSED:
            raise AssertionError("\n".join([f"{decision.outcome}: {decision.reason}", *self._blame(), f"report: {self.report}"]))

    def _blame(self) -> list[str]:
        """What is said of the first anomalous records."""
        if not self.folder.reconciliation.exists():
            return []
        rows = [row for row in pq.read_table(self.folder.reconciliation).to_pylist() if row["row"] == "record"]
        lines = [f"{row['anomaly']}: {row['blame']}" for row in rows[:SHOWN_RECORDS]]
        return [*lines, f"... and {len(rows) - SHOWN_RECORDS} more"] if len(rows) > SHOWN_RECORDS else lines


def _experiment(
    experiment: str | Path | dict[str, Any] | Experiment,
    faults: Sequence[str | dict[str, Any]] | None,
    seed: int | None,
    changes: dict[str, Any],
) -> Experiment:
    if isinstance(experiment, dict):
        document = experiment
    elif isinstance(experiment, Experiment):
        document = experiment.model_dump()
    else:
        document = model.load(Path(experiment)).model_dump()
    if faults is not None:
        document = {**document, "random": None, "faults": [{"fault": each} if isinstance(each, str) else each for each in faults]}
    if seed is not None:
        document = {**document, "seed": seed}
    return parse({**document, **changes}, "the experiment", Experiment)


def _when_free(experiment: Experiment) -> RunFolder:
    """Run an experiment once nobody else uses the testbed: other test processes take turns, other runs are waited for. Raises
    TestbedBusy after ``WAIT_S``."""
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{experiment.name}"
    with lock.turn(name, WAIT_S, log.info):
        return runner.run(experiment, name)


def _look(known: Sequence[Window]) -> None:
    log.info("%d windows: %s", len(known), ", ".join(window.name for window in known))


def _say(result: Result, number: int, total: int) -> None:
    log.info("%d of %d  %s: %s", number, total, result.told, result.outcome)
