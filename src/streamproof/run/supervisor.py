"""The stage ``run_pipeline``: keep the job's driver running, as a cluster manager would, until the run is done.

A driver that dies is started again at once. Beside one that a fault has set aside another is started, and that one is left alone. The
supervisor stops the job when the workload is sent, the fault injector is through with its phases, and the job has passed over every record.
"""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil

from streamproof import settings
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import DriverExited, DriverReady, DriverStarted, InjectionStarted, LoadFinished, PhaseBegan
from streamproof.evidence.made_anew import MadeAnew
from streamproof.experiment.model import Phase
from streamproof.experiment.schedule import Schedule
from streamproof.jobs.aside import start_aside
from streamproof.jobs.context import RunContext, RunEnded
from streamproof.jobs.down import is_down
from streamproof.jobs.engine import EXECUTOR_MARK, RUN_MARK, START_MARK
from streamproof.run.first_signs import FirstSigns
from streamproof.run.hints import hint
from streamproof.testbed import scratch
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import MARK, TestbedError, marked, stop_all, tail

POLL_S = 0.05
LOOK_S = 5.0
STOP_S = 45.0
BACKLOG_S = 10.0
MAX_STARTS = 20
MAX_FRUITLESS_STARTS = 6
MAX_STARTS_OF_NOTHING = 3
BACK_OFF_S = 1.0
LONGEST_BACK_OFF_S = 10.0
TRACEBACK = "Traceback (most recent call last):"
# What Python prints last of an exception: its class, with or without a module, and its message.
ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Failed|Lost|Busy)\b|[A-Za-z_]\w*(\.\w+)+: ")
LONGEST_ERROR = 500
log = logging.getLogger("streamproof.run.supervisor")


class PipelineFailed(Exception):
    """The job could not be kept running, or did not finish in time."""


def run_pipeline(run: RunContext, fruitless_starts: int = MAX_FRUITLESS_STARTS, patient: bool = False) -> None:
    """Run the job to its end. It is given up after ``fruitless_starts`` in a row that did not get to work, and when nothing more is to be
    expected of one, unless this is ``patient``. Raises PipelineFailed then, after too many starts in all, and at the deadline; RunEnded
    when the run was aborted."""
    try:
        with run.engine.progress(run.job, run.testbed) as check_progress:
            Supervisor(run, check_progress, fruitless_starts, patient).run()
    finally:
        kill_drivers(run.folder)


class Supervisor:
    def __init__(
        self, run: RunContext, check_progress: Callable[[], None], fruitless_starts: int = MAX_FRUITLESS_STARTS, patient: bool = False
    ) -> None:
        self._run, self._folder, self._engine, self._check_progress = run, run.folder, run.engine, check_progress
        self._cluster = Cluster(run.testbed.direct_kafka)
        self._start = len(self._folder.journal.all(DriverStarted))
        self._looked: float | None = None
        self._stopping: float | None = None
        self._said = 0
        self._aside: tuple[int, subprocess.Popen[bytes]] | None = None
        self._fruitless_starts = fruitless_starts
        self._first_signs = None if patient else FirstSigns(run)

    def run(self) -> None:
        (self._folder.path / "stop").unlink(missing_ok=True)
        if Schedule.read(self._folder).groups(Phase.START) and not self._start:
            self._run.eventually(self._backlog, BACKLOG_S)
        child = self._launch()
        while True:
            code = child.poll()
            if code is not None:
                self._exited(child, code)
                if self._stopping is not None and self._engine.stopped(code):
                    return
                self._run.check_alive()
                self._back_off_or_give_up()
                self._stay_down()
                child = self._launch()
            elif start_aside(self._folder) == self._start:
                self._aside = self._start, child
                child = self._launch()
            self._reap()
            self._watch(child)
            if self._first_signs is not None and (reason := self._first_signs.look(self._start)) is not None:
                raise PipelineFailed(self._with_last_error(reason))
            time.sleep(POLL_S)

    def _backlog(self) -> bool:
        """Whether there is more to be read than a batch. A fault that strikes as the job begins finds more there so: which partitions a
        first batch leaves out is seen only where all have something."""
        ends = self._cluster.end_offsets(self._run.job.input_topic)
        return min(ends.values(), default=0) > 0 and sum(ends.values()) >= 2 * self._run.job.batch_records

    def _launch(self) -> subprocess.Popen[bytes]:
        self._start += 1
        scratch.make(self._folder.path)
        launch = self._engine.launch(replace(self._run.job, start=self._start), self._run.testbed)
        env = {**launch.environment, MARK: str(settings.home()), RUN_MARK: self._folder.name, START_MARK: str(self._start)}
        with open(self._log(), "ab") as output:
            try:
                child = subprocess.Popen(
                    launch.command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=env,
                    start_new_session=True,
                    cwd=launch.folder,
                )
            except OSError as error:
                raise PipelineFailed(f"the job cannot be started: {' '.join(launch.command)}, in {launch.folder}: {error}") from error
        self._folder.journal.append(DriverStarted(start=self._start, pid=child.pid))
        log.info("driver start %d (pid %d)", self._start, child.pid)
        return child

    def _back_off_or_give_up(self) -> None:
        """A fault may end many starts, and a server that is away ends each before the driver is ready: the longer that goes on, the longer
        the next start is waited with. When it never ends, it is the job's own failure."""
        ready = max((event.start for event in self._folder.journal.all(DriverReady)), default=0)
        fruitless = self._start - ready
        # One that never worked, though nothing was broken yet, will not work later.
        never_worked = not ready and self._run.profile.of_a_user and self._folder.journal.last(InjectionStarted) is None
        allowed = min(MAX_STARTS_OF_NOTHING, self._fruitless_starts) if never_worked else self._fruitless_starts
        if self._start >= MAX_STARTS or fruitless >= allowed:
            raise PipelineFailed(self._why_it_gives_up(ready))
        if fruitless:
            until = time.monotonic() + min(BACK_OFF_S * 2 ** (fruitless - 1), LONGEST_BACK_OFF_S)
            while time.monotonic() < until:
                self._run.check_alive()
                time.sleep(POLL_S)

    def _stay_down(self) -> None:
        """As long as a fault says so."""
        while is_down(self._folder):
            self._run.check_alive()
            time.sleep(POLL_S)

    def _why_it_gives_up(self, ready: int) -> str:
        """The error of the driver's log, first in the message when each start since the last that was ready ended with the same one."""
        errors = [last_error(self._log(start)) for start in range(ready + 1, self._start + 1)]
        ending = f"its last log, {self._log()}, ends with:\n{tail(self._log())}"
        if errors and len(set(errors)) == 1:
            advice = hint(errors[0])
            told = f"{errors[0]}{f' ({advice})' if advice else ''}"
            return f"the driver ended {len(errors)} times in a row before it was ready, each time with: {told}\n{ending}"
        return f"the driver ended {self._start} times, the last time with: {last_error(self._log()) or 'nothing'}\n{ending}"

    def _with_last_error(self, reason: str) -> str:
        error = last_error(self._log())
        advice = hint(error)
        return f"{reason}. The last that it printed: {error}{f' ({advice})' if advice else ''}" if error else reason

    def _log(self, start: int | None = None) -> Path:
        return self._folder.logs / f"driver-{start or self._start}.log"

    def _exited(self, child: subprocess.Popen[bytes], code: int) -> None:
        self._say_exited(self._start, child, code)
        # Spark runs parts of the driver in processes of their own: a commit that goes on there would race with the next start's recovery.
        kill_drivers(self._folder, but=start_aside(self._folder))

    def _say_exited(self, start: int, child: subprocess.Popen[bytes], code: int) -> None:
        reason = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._folder.journal.append(DriverExited(start=start, pid=child.pid, code=code, reason=reason))
        log.info("driver start %d ended: %s", start, reason)

    def _reap(self) -> None:
        """Take note of the end of a start that was set aside."""
        if self._aside is not None and (code := self._aside[1].poll()) is not None:
            self._say_exited(*self._aside, code)
            self._aside = None

    def _watch(self, child: subprocess.Popen[bytes]) -> None:
        now = time.monotonic()
        if self._looked is None or now - self._looked > LOOK_S:
            self._looked = now
            self._run.check_alive()
            self._check_progress()
            if now > self._run.deadline:
                committed = self._run.progress.committed()
                advice = "" if committed else ": `streamproof doctor` says what is missing"
                raise PipelineFailed(f"the job did not finish in time: {committed} of {self._run.records} records{advice}")
        if self._stopping is None and self._done():
            self._engine.stop(self._run.job, child)
            self._stopping = now
            log.info("the job has passed over every record; stopping it")
        if self._stopping is not None and now - self._stopping > STOP_S:
            raise PipelineFailed(f"the driver did not stop within {STOP_S:.0f} s; see {self._log()}")
        if self._run.progress.batches() > self._said:
            self._said = self._run.progress.batches()
            log.info("%d micro-batches, %d of %d records", self._said, self._run.progress.committed(), self._run.records)

    def _done(self) -> bool:
        """Sent all, through with the phases, read to the end of the input. The cheap questions come first."""
        if self._run.progress.committed() < self._run.records and self._folder.journal.last(LoadFinished) is None:
            return False
        phase = self._folder.journal.last(PhaseBegan)
        if self._folder.journal.last(LoadFinished) is None or phase is None or phase.phase != "done":
            return False
        try:
            ends = MadeAnew.of(self._folder).placed(self._cluster.end_offsets(self._run.job.input_topic))
        except TestbedError:  # Kafka is away: it is asked again
            return False
        until = self._run.progress.until()
        return all(until.get(str(partition), 0) >= end for partition, end in ends.items())


def last_error(log: Path) -> str:
    """What ended a driver, by its log: the exception of the last traceback of Python, else the last line that names an error, else the last
    line. Behind a traceback a JVM that is told to end may complain of that. Empty when there is no line."""
    try:
        lines = [line.rstrip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except FileNotFoundError:
        return ""
    raised, within = list[str](), False
    for line in lines:
        if within and not line.startswith(" "):
            raised.append(line)
        within = line == TRACEBACK or (within and line.startswith(" "))
    stripped = [line.strip() for line in lines]
    return (raised or [line for line in stripped if ERROR_LINE.match(line)] or stripped or [""])[-1][:LONGEST_ERROR]


def kill_drivers(folder: RunFolder, but: int | None = None) -> list[int]:
    """End whatever still runs of the run's drivers, ``but`` for one start, and what these start while they are ended. Returns the pids.

    Executors are left alone: they end by themselves once their driver is gone, and may write for a moment longer, as anywhere.
    """
    return _kill(folder, RUN_MARK, but)


def kill_executors(folder: RunFolder) -> list[int]:
    """End whatever still runs of the run's executors. Returns the pids."""
    return _kill(folder, EXECUTOR_MARK)


def _kill(folder: RunFolder, mark: str, but: int | None = None) -> list[int]:
    def found() -> list[psutil.Process]:
        spared = [] if but is None else marked(**{mark: folder.name, START_MARK: str(but)})
        return [process for process in marked(**{mark: folder.name}) if process not in spared]

    return [process.pid for process in stop_all(found, f"run {folder.name}")]


__all__ = ["EXECUTOR_MARK", "PipelineFailed", "RunEnded", "kill_drivers", "kill_executors", "run_pipeline"]
