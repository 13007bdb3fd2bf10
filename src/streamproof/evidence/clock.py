"""Which times of a run's output are believed, and which two times can be put in order.

The times come from clocks that somebody may set, and of some sinks from the job. A delivered record whose time lies before the run was
created, or after its drain had ended, was not delivered then: its time is *unknown*. While a clock is set back it shows some time twice
(``clock_stepped`` in the journal): of two times that both lie there, nobody knows which came first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from streamproof.evidence.files import milliseconds
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import ClockStepped, RunCreated, StageFinished

MARGIN_MS = 1000
NEVER = int(np.iinfo(np.int64).max)
UNKNOWN = int(np.iinfo(np.int64).min)
"""In place of a time that is not believed."""
Span = tuple[int, int]


@dataclass(frozen=True)
class Clock:
    """Times from ``since`` to ``until``, in ms since the epoch, are believed; those of each span in ``twice`` were shown twice."""

    since: int = UNKNOWN
    until: int = NEVER
    twice: tuple[Span, ...] = ()

    @classmethod
    def of(cls, folder: RunFolder) -> Clock:
        """The clock of a run, from its journal and its drain; what an older run does not say sets no limit."""
        events = folder.journal.all(RunCreated, StageFinished, ClockStepped)
        steps = [event for event in events if isinstance(event, ClockStepped)]
        created = [milliseconds(event.at) for event in events if isinstance(event, RunCreated)]
        ended = [milliseconds(event.at) for event in events if isinstance(event, StageFinished) and event.stage == "drain"]
        drain = folder.read_json(folder.drain) if folder.drain.exists() else {}
        if drain.get("ended_at") is not None:
            ended = [milliseconds(drain["ended_at"])]
        margin = MARGIN_MS + _fall(event.step_ms for event in steps)
        back = [(milliseconds(event.since), milliseconds(event.until)) for event in steps if event.step_ms < 0]
        return cls(min(created) - margin if created else UNKNOWN, max(ended) + margin if ended else NEVER, _joined(back))

    def believed(self, at: np.ndarray) -> np.ndarray:
        """These times, UNKNOWN in place of those that are not believed."""
        return np.where((at >= self.since) & (at <= self.until), at, UNKNOWN)

    def doubtful(self, at: np.ndarray) -> np.ndarray:
        """Which of these times are unknown, or were shown twice."""
        return np.asarray((at == UNKNOWN) | self.unordered(at, at))

    def unordered(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Of which pairs both times were shown twice, by the same step of the clock."""
        found = np.zeros(len(one), bool)
        for since, until in self.twice:
            found |= (one >= since) & (one <= until) & (other >= since) & (other <= until)
        return found


def _fall(steps: Iterable[int]) -> int:
    """How far the clock was set back at most, from any moment to a later one."""
    fallen = deepest = 0
    for step in steps:
        fallen = min(fallen + step, 0)
        deepest = min(deepest, fallen)
    return -deepest


def _joined(spans: Sequence[Span]) -> tuple[Span, ...]:
    """The spans in order, those that touch as one."""
    joined: list[Span] = []
    for since, until in sorted(spans):
        if joined and since <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(until, joined[-1][1])
        else:
            joined.append((since, until))
    return tuple(joined)
