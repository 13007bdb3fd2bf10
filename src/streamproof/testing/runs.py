"""What a test does: run an experiment, and assert what the job delivered.

A guarantee that is asserted is decided by the same rules as any verdict (``streamproof.verdict.decide``): the records of the run are held
to the asserted guarantee instead of to what the job promises. A run that shows nothing (no evidence that the fault took effect, nothing
delivered after it, an unfinished drain) does not keep a guarantee.
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
from streamproof.exclusive import exclusive
from streamproof.experiment import model
from streamproof.experiment.model import Experiment
from streamproof.experiment.reading import parse
from streamproof.run import lock, runner
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
        be held: ``ordered``, ``atomic``."""
        __tracebackhide__ = True
        self._assert_guarantee(Guarantee.EXACTLY_ONCE, promises)

    def assert_at_least_once(self, *promises: str) -> None:
        """No record was lost, and none counted as done before it was delivered."""
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

    def taken(holder: str) -> lock.TestbedBusy:
        return lock.TestbedBusy(f"tests of process {holder} have used the testbed for {WAIT_S:.0f} s")

    with exclusive(settings.home() / "tests.lock", WAIT_S, taken):
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{experiment.name}"
        lock.wait(name, WAIT_S, log.info)
        return runner.run(experiment, name)
