"""How a run ended, from its journal: whether it was stopped, or one of its stages failed. Its records play no part here."""

from __future__ import annotations

from dataclasses import dataclass

from streamproof.evidence.journal import (
    Aborted,
    ClockStepped,
    DecisionLost,
    Event,
    HistoryFailed,
    Journal,
    Restored,
    RunnerVanished,
    StageFailed,
    StageFinished,
    TestbedRebuilt,
    TestbedTaken,
)


@dataclass(frozen=True)
class Ending:
    """``aborted`` is why the run was stopped, ``failed_stage`` names the stage that failed, with its error."""

    aborted: str | None = None
    failed_stage: str | None = None

    @classmethod
    def of(cls, journal: Journal) -> Ending:
        return cls(_aborted(journal), _failed_stage(journal))


def _aborted(journal: Journal) -> str | None:
    """Why the run was stopped. What comes after the run gave the testbed back stops nothing any more."""
    reason, over = None, False
    for event in journal.all(Aborted, Restored, TestbedTaken):
        if isinstance(event, Aborted):
            reason = reason if over else event.reason
        else:
            over = isinstance(event, Restored)
    return reason


def _failed_stage(journal: Journal) -> str | None:
    """The first stage that failed and was not repeated with success."""
    failures: dict[str, StageFailed] = {}
    for event in journal.all(StageFailed, StageFinished):
        if isinstance(event, StageFailed):
            failures.setdefault(event.stage, event)
        elif isinstance(event, StageFinished):
            failures.pop(event.stage, None)
    first = min(failures.values(), key=lambda event: event.at, default=None)
    return f"stage {first.stage} failed: {first.error}" if first is not None else None


def notes(events: list[Event]) -> list[str]:
    """Facts other than records that a reader of the verdict should know."""
    lines, lost, unwritten = [], {}, None
    for event in events:
        if isinstance(event, RunnerVanished):
            lines.append(f"its runner vanished: the watchdog gave the testbed back ({event.reason})")
        elif isinstance(event, TestbedRebuilt):
            lines.append(f"the testbed could not be brought back and was built anew ({event.reason})")
        elif isinstance(event, DecisionLost):
            lost[event.transaction] = event.batch
        elif isinstance(event, ClockStepped):
            lines.append(
                f"the machine's clock was set by {event.step_ms / 1000:+.3f} s at {event.at}: times across that are off by as much"
            )
        elif isinstance(event, HistoryFailed):
            unwritten = event.error
    if lost:
        batches = ", ".join(str(batch) for batch in sorted(set(lost.values())))
        lines.append(f"the job decided to commit {len(lost)} transactions (batch {batches}) that the broker had aborted, and went on")
    if unwritten is not None:
        lines.append(f"it could not be written to the history ({unwritten}): `streamproof history import` takes it in later")
    return lines
