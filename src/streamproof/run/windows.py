"""Look at a job from outside: run it once without faults, and read its windows from the trace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from itertools import pairwise

from streamproof.errors import BadInput
from streamproof.evidence.coverage import Coverage
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import InjectionInjected, fault_of
from streamproof.evidence.progress import Progress
from streamproof.experiment.model import Experiment
from streamproof.jobs import windows
from streamproof.jobs.job import Job
from streamproof.jobs.windows import Trace, Window
from streamproof.run import runner
from streamproof.run.coverage import moment_ns
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.verdict import Verdict

RECORDS = 10_000
FIELDS = tuple(each.name for each in fields(Window))


@dataclass(frozen=True)
class Look:
    """What a run without faults shows of a job."""

    windows: tuple[Window, ...]
    """Those that it passed again and again."""
    statements: tuple[str, ...] = ()
    """What it does to tables of PostgreSQL within a transaction, as `INSERT orders`: no step, for a crash undoes it, but something that may
    be refused."""
    commits: int = 0
    """How often it committed what it had done."""
    found: dict[str, int] = field(default_factory=dict)
    """By which anomalies it broke its promise all the same, and how often."""
    once: tuple[str, ...] = ()
    """Steps that it did only once, while it did others again and again: no window lies beside them that could be aimed at."""


def experiment_for(given: Experiment) -> Experiment:
    """The same job on a workload of at most ``RECORDS``, traced, without faults."""
    return given.without_faults("windows", RECORDS, suite=None, trace=True)


def look(experiment: Experiment) -> Look:
    """Run the job, and say what was seen of it. Raises BadInput when its run came to no verdict."""
    folder = runner.run(experiment, f"windows-{time.strftime('%Y%m%dT%H%M%S')}")
    verdict = Verdict.read(folder)
    if verdict.outcome not in (RunOutcome.PASSED, RunOutcome.FAILED):
        raise BadInput(f"the run without faults did not go well, so its windows are not known: {verdict.reason} ({folder.path})")
    coverage = Coverage.read(folder)  # written before the run's output was taken away, whose files are steps
    if coverage is None:
        return Look((), found=verdict.broken)
    trace = Trace(Job.read(folder))
    steps = trace.read_on()
    inside = dict.fromkeys(request.statement for request in trace.requests if request.statement and request.name is None)
    known = tuple(Window(**{name: passed[name] for name in FIELDS}) for passed in coverage.passed)
    return Look(known, tuple(inside), len(Progress(folder).lines()), verdict.broken, tuple(windows.done_once(steps)))


def in_recovery(folder: RunFolder, fault: str) -> Iterator[tuple[str, str]]:
    """The windows that lie between the messages of a start that took over from one that ``fault`` struck, until it has committed a batch:
    each with the window in which that one was struck."""
    if not folder.messages.exists():  # it broke before the job began
        return
    steps = sorted(Trace(Job.read(folder)).read_on(), key=lambda step: step.done_ns)
    lines = Progress(folder).lines()
    for event in folder.journal.all(InjectionInjected):
        if fault_of(event.injection) != fault or not (strikes := windows.strikes(event.target)):
            continue
        later = (moment_ns(line["committed_at"]) for line in lines if line["start"] > event.target["start"])
        until_ns = min(later, default=0)
        recovered = [step for step in steps if step.begun_ns > strikes[-1].at_ns and step.done_ns <= until_ns]
        yield from ((f"{one.name}{windows.ARROW}{other.name}", strikes[-1].window) for one, other in pairwise(recovered))
