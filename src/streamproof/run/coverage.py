"""Say in which windows a job was killed, from the trace of its run: whatever killed it, and whether or not it was aimed there."""

from __future__ import annotations

from datetime import datetime

from streamproof.evidence.coverage import Coverage
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import InjectionInjected
from streamproof.jobs import windows
from streamproof.jobs.job import Job
from streamproof.jobs.windows import Step, Trace

KILLERS = ("kill_driver", "kill_at_window")


def write(folder: RunFolder, job: Job) -> None:
    """Nothing is written for a run whose messages were not read."""
    if not folder.messages.exists():
        return
    steps = Trace(job).all_steps()
    known = [window.name for window in windows.windows(steps)]
    hit = {event.injection: window for event in folder.journal.all(InjectionInjected) if (window := _hit(event, steps, known)) is not None}
    Coverage(tuple(dict.fromkeys([*known, *hit.values()])), hit).write(folder)


def _hit(event: InjectionInjected, steps: list[Step], known: list[str]) -> str | None:
    """The window in which an injection killed the job; None when it killed nothing, or where the next step may have been one of several."""
    if event.injection.rpartition("-")[0] not in KILLERS:
        return None
    killed_ns = windows.struck_ns(event.target) or int(datetime.fromisoformat(event.at).timestamp() * 1e9)
    last = windows.last_before(steps, killed_ns)
    of_last = [] if last is None else [name for name in known if windows.parsed(name)[0] == last.name]
    aimed = event.target.get("window")
    if aimed is not None and last is not None and windows.parsed(aimed)[0] == last.name:
        return str(aimed)
    return of_last[0] if len(of_last) == 1 else None
