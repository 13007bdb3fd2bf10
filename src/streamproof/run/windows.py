"""Look at a job from outside: run it once without faults, and read its windows from the trace."""

from __future__ import annotations

import time
from dataclasses import fields

from streamproof.errors import BadInput
from streamproof.evidence.coverage import Coverage
from streamproof.experiment.model import Experiment
from streamproof.jobs.windows import Window
from streamproof.run import runner
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.verdict import Verdict

RECORDS = 10_000
FIELDS = tuple(field.name for field in fields(Window))


def experiment_for(given: Experiment) -> Experiment:
    """The same job on a workload of at most ``RECORDS``, traced, without faults."""
    return given.without_faults("windows", RECORDS, suite=None, trace=True)


def seen(experiment: Experiment) -> list[Window]:
    """The windows that the job passed. Raises BadInput when its run did not go well."""
    folder = runner.run(experiment, f"windows-{time.strftime('%Y%m%dT%H%M%S')}")
    verdict = Verdict.read(folder)
    if verdict.outcome not in (RunOutcome.PASSED, RunOutcome.FAILED):
        raise BadInput(f"the run without faults did not go well, so its windows are not known: {verdict.reason} ({folder.path})")
    coverage = Coverage.read(folder)  # written before the run's output was taken away, whose files are steps
    return [] if coverage is None else [Window(**{name: passed[name] for name in FIELDS}) for passed in coverage.passed]
