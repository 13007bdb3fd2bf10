"""Whether a job that has not shown any progress will ever: what its processes do, and to what they connect.

A slow start is no reason to give up: the job is given up after ``IDLE_S`` in which its processes stood idle while there were records to
read, and once they have computed for ``COMPUTED_S``, however long a busy machine takes for that. A process is not idle that computes, waits
for a processor or a disk, or loads something from another machine. The executors of the testbed's Spark count as the job's.

Only a user's own job is looked at, only until it has shown progress, and not once a fault was injected. A job that goes round all proxies
is given up even when it shows progress: no fault on a link would reach it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import psutil

from streamproof.evidence.folder import EvidenceError
from streamproof.evidence.journal import InjectionStarted
from streamproof.jobs.context import RunContext
from streamproof.jobs.engine import RUN_MARK
from streamproof.jobs.job import Job
from streamproof.run.watch import Watch
from streamproof.sinks import outputs
from streamproof.testbed.external import Outside
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError, marked

LOOK_S = 1.0
IDLE_S = 40.0
COMPUTED_S = 180.0
IDLE_CORES = 0.2  # a client that polls, a JVM that waits
BUSY_SHARE = 0.3
SPARK_WORKER = "org.apache.spark.deploy.worker.Worker"
BUSY = frozenset({psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP})
BUSY_THREADS = frozenset("RD")  # the same of a thread, in /proc


class Sample(NamedTuple):
    """What the job's processes did by ``at``: how long each has computed in all, and whether one waits for the machine or the network."""

    at: float
    cpu_s: dict[int, float]
    waits: bool


class FirstSigns:
    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._watch = Watch(run.folder.name, run.testbed)
        self._samples: deque[Sample] = deque()
        self._start, self._begun = 0, time.monotonic()
        self._computed_s: dict[int, float] = {}
        self._over = not run.profile.of_a_user

    def look(self, start: int) -> str | None:
        """Why nothing more is to be expected of this start; None while something is. Asked often."""
        now = time.monotonic()
        if self._over or (self._samples and now < self._samples[-1].at + LOOK_S):
            return None
        if self._run.progress.batches() or self._run.folder.journal.last(InjectionStarted):
            self._over = True
            self._watch.look()
            return self._round_the_proxies()
        if start != self._start:
            self._start, self._begun = start, now
            self._samples.clear()
            self._computed_s.clear()
        self._watch.look()
        self._samples.append(sample(now, self._processes(), self._loads_something()))
        while now - self._samples[0].at > IDLE_S + LOOK_S:
            self._samples.popleft()
        self._computed_s |= self._samples[-1].cpu_s
        if idle(self._samples) or sum(self._computed_s.values()) > COMPUTED_S:
            return self._why() if self._input() else None
        return None

    def _processes(self) -> list[psutil.Process]:
        return [*marked(**{RUN_MARK: self._run.folder.name}), *_below_spark_workers()]

    def _loads_something(self) -> bool:
        """A package, say: it is connected to another machine, and to no server of the testbed."""
        seen = self._watch.seen
        return bool(seen.elsewhere_now) and not seen.proxies and not seen.around

    def _input(self) -> int:
        """How many records there are to be read; 0 while that is not known."""
        try:
            return sum(Cluster(self._run.testbed.direct_kafka).end_offsets(self._run.job.input_topic).values())
        except TestbedError:
            return 0

    def _why(self) -> str:
        seen, job = self._watch.seen, self._run.job
        waited = f"{time.monotonic() - self._begun:.0f} s after it was started"
        elsewhere = f" (it connects to {', '.join(sorted(seen.elsewhere))})" if seen.elsewhere else ""
        outside = isinstance(self._run.testbed, Outside)  # whose addresses need not be proxies
        if not seen.proxies and not seen.around and not outside:
            return (
                f"the job never connected: {waited} it has reached no server of the testbed{elsewhere}; expected Kafka at {job.bootstrap}. "
                "Give it {bootstrap_servers}, in `command` or in `env`"
            )
        if (reason := self._round_the_proxies()) is not None:
            return reason
        source = self._run.engine.progress_source(job, self._run.testbed)
        return f"the job has shown no progress {waited}: expected it by {source.where}, nothing came. To mend it: {source.when_nothing}"

    def _round_the_proxies(self) -> str | None:
        """That the job uses no proxy; None when it uses one, or nothing of the testbed is known to be used."""
        seen = self._watch.seen
        if seen.proxies or not seen.around:
            return None
        return (
            f"the job goes round the proxies, where no fault can break a link: it reaches {', '.join(sorted(seen.around))}. "
            "Take its addresses from {bootstrap_servers}, {jdbc_url} and {postgres}"
        )


def sample(at: float, processes: Iterable[psutil.Process], loads: bool) -> Sample:
    cpu_s, waits = {}, loads
    for process in processes:
        try:
            times, waiting = process.cpu_times(), process.status() in BUSY
            states = {path.read_text().rpartition(")")[2].split()[0] for path in _threads(process.pid)}
        except (psutil.Error, OSError):
            continue
        cpu_s[process.pid] = times.user + times.system
        waits = waits or waiting or bool(states & BUSY_THREADS)
    return Sample(at, cpu_s, waits)


def _threads(pid: int) -> list[Path]:
    """What Linux says of each thread; nothing elsewhere."""
    return list(Path(f"/proc/{pid}/task").glob("[0-9]*/stat"))


def idle(samples: deque[Sample]) -> bool:
    """Whether the processes stood idle for ``IDLE_S``."""
    if not samples or samples[-1].at - samples[0].at < IDLE_S:
        return False
    computed_s = sum(last - first for first, last in _spent(samples))
    return computed_s < IDLE_CORES * IDLE_S and sum(each.waits for each in samples) < BUSY_SHARE * len(samples)


def _spent(samples: deque[Sample]) -> Iterable[tuple[float, float]]:
    """Of each process: how long it had computed when it was first seen (nothing, when it began later) and when it was last."""
    last: dict[int, float] = {}
    for each in samples:
        last |= each.cpu_s
    return [(samples[0].cpu_s.get(pid, 0.0), cpu_s) for pid, cpu_s in last.items()]


def _below_spark_workers() -> list[psutil.Process]:
    """The processes that the testbed's Spark workers have started: executors, and their Python workers."""
    found = []
    for process in marked():
        try:
            if SPARK_WORKER in process.cmdline():
                found += process.children(recursive=True)
        except psutil.Error:
            continue
    return found


# --- what it delivers -------------------------------------------------------------------------------------------------------------

DELIVERED_S = 20.0


def not_delivered(run: RunContext) -> str | None:
    """What is wrong with the output of a job that has committed its first batches: nothing is there, or nothing with an identity. None when
    nothing is wrong. Waits ``DELIVERED_S`` for a first record."""
    follower = outputs.of(run.job).follower(run.job, run.testbed)
    seen, problem = 0, ""

    def identified() -> bool:
        nonlocal seen, problem
        try:
            for identity in follower.identities():
                seen += 1
                if identity is not None:
                    return True
            problem = ""
        except (EvidenceError, TestbedError) as error:
            problem = str(error)
        return False

    try:
        if run.eventually(identified, DELIVERED_S):
            return None
    finally:
        follower.close()
    run.check_alive()
    committed = f"the job has committed {run.progress.committed()} records"
    if seen:
        return (
            f"{committed}, and no record of its output carries an identity that can be read: expected it in {where(run.job)}. Say in "
            "`identity` where the job keeps the identity of a record, and have it pass the identity on unchanged"
        )
    instead = _instead(run, problem)
    return f"{committed} and delivered nothing: expected them in {where(run.job)}{instead}. Have it deliver where `delivers` says"


def _instead(run: RunContext, problem: str) -> str:
    """What is there instead."""
    if problem:
        return f"; {problem}"
    if run.job.sink != "kafka" or isinstance(run.testbed, Outside):
        return ""
    cluster, own = Cluster(run.testbed.direct_kafka), {run.job.input_topic, run.job.output_topic}
    others = {name: sum(cluster.end_offsets(name).values()) for name in cluster.topics() if name not in own and not name.startswith("__")}
    there = [f"{name} ({records} records)" for name, records in sorted(others.items()) if records]
    return f"; other topics hold records: {', '.join(there)}" if there else "; no other topic holds any either"


def where(job: Job) -> str:
    """Where the job is to deliver."""
    if table := job.output.get("table"):
        return f"the table {table}"
    if "path" in job.output:
        return f"the folder {job.output_folder}"
    return f"the topic {job.output_topic}" if job.sink == "kafka" else f"its output ({job.sink})"
