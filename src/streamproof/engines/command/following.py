"""Follows how far a job has come, in a thread, and writes a line of ``progress.jsonl`` for each micro-batch that it commits.

Where the committed offsets are read is the affair of a source: the job's consumer group (``group``), Spark's checkpoint folder
(``spark_checkpoint``), or what it delivered (``output``). A start that has committed something is ready (``driver_ready``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol

from streamproof.evidence.folder import append_json_line
from streamproof.evidence.journal import DriverReady, DriverStarted
from streamproof.evidence.progress import Progress
from streamproof.jobs.job import Job

LOOK_S = 0.05
END_S = 10.0
log = logging.getLogger("streamproof.engines.command.following")


@dataclass(frozen=True)
class Commit:
    """The offsets up to which the job has committed, of some partitions, and when. ``batch`` and ``began_at`` where the source has them.
    With ``of_output`` the job has not said so: it has delivered up to there."""

    until: Mapping[int, int]
    at: datetime
    batch: int | None = None
    began_at: datetime | None = None
    of_output: bool = False


class Source(Protocol):
    """Where a job's commits are seen."""

    def commits(self, committed: Mapping[int, int]) -> Iterator[Commit]:
        """What was committed since the last look, oldest first; ``committed`` is what was seen so far. While nothing is known: nothing."""

    def close(self) -> None: ...


class Following:
    """Follows one job while it is entered. ``about`` says what else is known of a start that is ready: its application, its UI."""

    def __init__(self, job: Job, source: Source, about: Callable[[], Mapping[str, str]] = dict) -> None:
        self._job, self._source, self._about = job, source, about
        progress = Progress(job.run)
        self._committed = {int(partition): offset for partition, offset in progress.until().items()}
        self._batch, self._ready = progress.batches(), 0
        self._since = datetime.now(UTC)
        self._done = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, name="progress", daemon=True)

    def __enter__(self) -> Callable[[], None]:
        self._thread.start()
        return self._check

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        self._thread.join(END_S)
        self._source.close()
        if error is None:
            self._check()

    def _follow(self) -> None:
        try:
            while not self._done.wait(LOOK_S):
                self._look()
            self._look()
        except BaseException as failure:  # noqa: BLE001 - it is raised again where the run waits for it
            self._failure = failure
            log.error("the job's progress is not followed any more: %s", failure)

    def _look(self) -> None:
        for commit in self._source.commits(self._committed):
            moved = {partition: offset for partition, offset in commit.until.items() if offset > self._committed.get(partition, 0)}
            if moved:
                self._write(commit, moved)

    def _write(self, commit: Commit, moved: Mapping[int, int]) -> None:
        before = {partition: self._committed.get(partition, 0) for partition in moved}
        journal = self._job.run.journal
        started = journal.last(DriverStarted)
        start = 1 if started is None else started.start
        if start != self._ready:
            resumes_at = {} if commit.of_output else _named(self._committed)
            journal.append(DriverReady(start=start, resumes_at=resumes_at, **self._about()))
            self._ready = start
        self._committed |= moved
        began = commit.began_at or self._since
        until = _named(self._committed)
        line = {
            "batch": self._batch if commit.batch is None else commit.batch,
            "start": start,
            "rows": sum(moved.values()) - sum(before.values()),
            "started_at": _stamp(began),
            "committed_at": _stamp(commit.at),
            "trigger_ms": round((commit.at - began).total_seconds() * 1000),
            **({"from": {}, "until": {}, "passed_over": until} if commit.of_output else {"from": _named(before), "until": until}),
        }
        self._batch, self._since = self._batch + 1, commit.at
        append_json_line(self._job.run.progress, line)


def _named(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def _stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
