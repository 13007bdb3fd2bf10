"""Say where faults struck a job, from the trace of its run: in which window it was killed, whatever killed it and whether or not it was
aimed there; and in which situation it was when each fault struck."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime

from streamproof.evidence.coverage import Coverage, Situation, Stage
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import DriverStarted, InjectionInjected, InjectionStarted
from streamproof.evidence.progress import Progress
from streamproof.jobs import windows
from streamproof.jobs.job import Job
from streamproof.jobs.windows import Step, Trace

LEAVES = "leaves"
KILLERS = ("kill_driver", "kill_at_window", "kill_process")


def write(folder: RunFolder, job: Job) -> None:
    """Nothing is written for a run whose messages were not read."""
    if not folder.messages.exists():
        return
    trace = Trace(job)
    steps = trace.all_steps()
    passed = windows.windows(steps)
    known = [window.name for window in passed]
    situations = tuple(_situations(folder, trace, steps, known))
    hit = {one.injection: one.window for one in reversed(situations) if one.fault in KILLERS and one.window is not None}
    names = dict.fromkeys([*known, *(one.window for one in situations if one.window is not None)])
    told = tuple({**asdict(one), LEAVES: windows.leaves(one.name)} for one in passed)
    Coverage(tuple(names), hit, told, situations).write(folder)


def moment_ns(at: str) -> int:
    """A moment of the journal by ``time.time_ns``."""
    return int(datetime.fromisoformat(at).timestamp() * 1e9)


class _Course:
    """When the driver was started and when batches were committed, read once for all that struck."""

    def __init__(self, folder: RunFolder) -> None:
        self._started = [moment_ns(event.at) for event in folder.journal.all(DriverStarted)]
        self._committed = [moment_ns(line["committed_at"]) for line in Progress(folder).lines()]

    def stage(self, at_ns: int) -> Stage:
        committed = max((moment for moment in self._committed if moment <= at_ns), default=None)
        if committed is None:
            return Stage.START
        return Stage.RECOVERY if any(committed < moment <= at_ns for moment in self._started) else Stage.WORK


def _situations(folder: RunFolder, trace: Trace, steps: list[Step], known: list[str]) -> Iterator[Situation]:
    course = _Course(folder)
    for injection, at_ns, aimed in _moments(folder, trace):
        last = windows.last_before(steps, at_ns)
        after = "" if last is None else last.name
        flying = [one for one in trace.requests if one.begun_ns <= at_ns and (one.done_ns is None or one.done_ns > at_ns)]
        window = _window(after, [one.name for one in flying if one.name is not None], aimed, known)
        yield Situation(injection, after, course.stage(at_ns), tuple(sorted({one.message for one in flying})), window)


def _window(after: str, flying: list[str], aimed: str | None, known: list[str]) -> str | None:
    """The window in which a fault struck, after a step; None where the next step may have been one of several. What it was aimed at says
    which, as far as it was met, and else what was on its way."""
    of_last = [name for name in known if windows.parsed(name)[0] == after]
    if aimed is not None and windows.parsed(aimed)[0] == after:
        return aimed
    if len(of_last) > 1:
        of_last = [name for name in of_last if windows.parsed(name)[1] in flying]
    return of_last[0] if len(of_last) == 1 else None


def _moments(folder: RunFolder, trace: Trace) -> Iterator[tuple[str, int, str | None]]:
    """When each injection struck, and the window that it was aimed at: at its windows or at its message where it waited for one, else when
    it was done."""
    parameters = {event.injection: event.parameters or {} for event in folder.journal.all(InjectionStarted)}
    for event in folder.journal.all(InjectionInjected):
        asked, done_ns = parameters.get(event.injection, {}), moment_ns(event.at)
        if strikes := windows.strikes(event.target):
            yield from ((event.injection, strike.at_ns, strike.window) for strike in strikes)
        elif (message := asked.get("message")) is None:
            yield event.injection, done_ns, None
        else:
            later = [one.begun_ns for one in trace.requests if one.message == message and one.begun_ns >= done_ns]
            nth = int(asked.get("nth", 1))  # it may never have come
            yield from ((event.injection, at_ns, None) for at_ns in later[nth - 1 : nth])
