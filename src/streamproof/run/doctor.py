"""The doctor: starts a job once, without faults, on a small workload, and says what it saw and how to mend what is missing.

    starts       it keeps running, and ends when it is told to
    connects     through the testbed's proxies, which faults break; what goes round them cannot be broken
    reads        how far it has come is seen, where ``progress`` says
    delivers     records arrive where ``delivers`` says
    identity     each of them carries the identity of a record that was sent
    keeps        without a fault no record is missing, and none is there too often

It is a run without a verdict: nothing of it stays, neither a folder nor an entry of the history.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from streamproof.engines.lookup import engine_of, read_job
from streamproof.evidence import histories
from streamproof.evidence.columns import integers
from streamproof.evidence.expected import Expected
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.journal import DriverExited, DriverStarted
from streamproof.evidence.progress import Progress
from streamproof.experiment.model import Experiment
from streamproof.jobs.context import FaultError, RunEnded
from streamproof.jobs.job import Job
from streamproof.run import healing, lock, runner, stages, writers
from streamproof.run.first_signs import where
from streamproof.run.hints import hint
from streamproof.run.supervisor import PipelineFailed, last_error
from streamproof.run.watch import Seen, Watch
from streamproof.shown import first
from streamproof.sinks import outputs
from streamproof.testbed import chosen
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError
from streamproof.verdict.checks.places import pieces

RECORDS = 1000
BATCHES = 10
DRAIN_S = 30.0
SHOWN_NAMES = 5
OPTIONS: dict[str, dict[str, Any]] = {"run_pipeline": {"fruitless_starts": 1, "patient": True}, "inject_faults": {"patient": True}}
"""It sees by itself what would end a run: a whole look at the job says more."""


@dataclass(frozen=True)
class Finding:
    """What was looked at, whether it is as it must be, what was seen, and what to do about it."""

    about: str
    well: bool
    seen: str
    mend: str = ""


def experiment_for(given: Experiment, timeout_s: int) -> Experiment:
    """The same job on a small workload, without faults."""
    batch = min(RECORDS, given.workload.records) // BATCHES
    return given.without_faults("doctor", RECORDS, suite=None, batch_records=batch, timeout_s=timeout_s)


def examine(experiment: Experiment) -> list[Finding]:
    """Start the job of ``experiment`` once and say what was seen. Raises BadInput, TestbedBusy and TestbedError before it is started."""
    folder = stages.create(experiment, f"doctor-{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}", owner=os.getpid())
    try:
        stages.perform("prepare", folder)
        testbed = chosen.current(folder)
        return list(_Examination(folder, testbed).findings())
    finally:
        held = lock.holder()
        if held is not None and held.run == folder.name:
            healing.give_back(folder)
        shutil.rmtree(folder.path, ignore_errors=True)


class _Examination:
    """One start of a job that was prepared, and what is known of it afterwards."""

    def __init__(self, folder: RunFolder, testbed: Testbed) -> None:
        self._folder, self._testbed, self._job = folder, testbed, read_job(folder)
        self._cluster = Cluster(testbed.direct_kafka)
        self._topics = set(self._cluster.topics())
        begun = time.monotonic()
        with Watch(folder.name, testbed) as watch:
            self._failure = self._ran()
        self._seconds = time.monotonic() - begun
        self._seen: Seen = watch.seen
        self._sent = sum(self._cluster.end_offsets(self._job.input_topic).values())

    def findings(self) -> Iterator[Finding]:
        yield self._starts()
        yield self._connects()
        yield self._reads()
        yield from self._delivers()
        if made := set(self._cluster.topics()) - self._topics:
            yield Finding(
                "other topics",
                False,
                f"the job made {_listed(made)}, which nobody looks at",
                "have it deliver to {output_topic}" if self._job.sink == "kafka" else "if it delivers there, say so in `delivers`",
            )

    def _ran(self) -> str | None:
        """Why the job could not be run to its end; None when it was."""
        try:
            runner.side_by_side(self._folder, options=OPTIONS)
        except (PipelineFailed, TestbedError, EvidenceError, RunEnded, FaultError) as error:
            return str(error).splitlines()[0]
        return None

    # --- it keeps running ------------------------------------------------------------------------------------------------------------

    def _starts(self) -> Finding:
        ended = self._ended_by_itself()
        pids = {event.pid for event in self._folder.journal.all(DriverStarted)}
        names = _listed(set(self._seen.processes.values())) or "no process"
        if not ended:
            if self._failure is not None and "did not stop" in self._failure:
                return Finding("starts", False, f"{names}; {self._failure}", "have it end on SIGTERM")
            return Finding("starts", True, f"{names}; it kept running, and was told to end after {self._seconds:.0f} s")
        error = last_error(self._folder.logs / f"driver-{ended[0].start}.log")
        if ended[0].code == 0:
            forked = set(self._seen.processes) - pids
            seen = f"its command ended by itself with exit code 0{f', while {names} went on' if forked else ''}"
            mend = (
                "have the command stay in the foreground" if forked else "have it go on until it gets SIGTERM: a streaming job has no end"
            )
            return Finding("starts", False, f"{seen}. Its last line: {error or 'none'}", mend)
        count = "" if len(ended) == 1 else f", {len(ended)} times"
        return Finding("starts", False, f"it ended by itself ({ended[0].reason}{count}): {error or 'it said nothing'}", hint(error))

    def _ended_by_itself(self) -> list[DriverExited]:
        """The ends that nobody asked for: all but the one of a job that was through."""
        ended = self._folder.journal.all(DriverExited)
        return ended if self._failure is not None else ended[:-1]

    # --- where it connects -----------------------------------------------------------------------------------------------------------

    def _connects(self) -> Finding:
        at = f"the proxies {_listed(self._seen.proxies)}" if self._seen.proxies else "no proxy"
        elsewhere = f"; also to {_listed(self._seen.elsewhere)}, which no fault breaks" if self._seen.elsewhere else ""
        if self._seen.around:
            mend = "take its addresses from {bootstrap_servers}, {jdbc_url} and {postgres}: those lead through the proxies"
            return Finding("connects", False, f"to {at}, and round them to {_listed(self._seen.around)}{elsewhere}", mend)
        if not self._seen.proxies:
            return Finding("connects", False, f"to {at}{elsewhere}", "give it {bootstrap_servers}, in `command` or in `env`")
        return Finding("connects", True, f"to {at}{elsewhere}")

    # --- how far it came -------------------------------------------------------------------------------------------------------------

    def _reads(self) -> Finding:
        progress = Progress(self._folder)
        committed, batches = progress.committed(), progress.batches()
        source = engine_of(self._job).progress_source(self._job, self._testbed)
        seen = f"{committed} of {self._sent} records that were sent are committed, in {batches} steps, by {source.where}"
        if not committed:
            return Finding("reads", False, seen, source.when_nothing)
        mend = "" if self._failure is None else f"it was stopped: {self._failure}"
        return Finding("reads", self._failure is None, seen, mend)

    # --- what it delivered -----------------------------------------------------------------------------------------------------------

    def _delivers(self) -> Iterator[Finding]:
        try:
            rows = _drained(self._folder, self._job, self._testbed)
        except (EvidenceError, TestbedError) as error:
            yield Finding("delivers", False, str(error), "have it deliver where `delivers` says")
            return
        place = where(self._job)
        if not rows.num_rows:
            mend = "" if self._failure else "have it deliver where `delivers` says, before it commits its offsets"
            yield Finding("delivers", False, f"nothing in {place}", mend)
            return
        if stages.load(self._folder).of_results:
            yield Finding("delivers", True, f"{rows.num_rows} results in {place}; a run holds them against the reference")
            return
        yield Finding("delivers", True, f"{rows.num_rows} records in {place}")
        known = rows.filter(pa.compute.is_valid(rows["producer"]))
        if known.num_rows < rows.num_rows:
            strange = rows.num_rows - known.num_rows
            mend = "say in `identity` where the job keeps the identity of a record, and have it pass the identity on unchanged"
            yield Finding("identity", False, f"{strange} of {rows.num_rows} delivered records carry none that was sent", mend)
            return
        yield Finding("identity", True, f"all {rows.num_rows} delivered records carry one")
        yield self._keeps(known)

    def _keeps(self, known: pa.Table) -> Finding:
        committed = Progress(self._folder).committed()
        copies = np.bincount(integers(known["sequence"]), minlength=self._sent)
        due = Expected.of(self._folder).of_sequences(np.arange(len(copies)))
        often, missing = int((copies > due).sum()), max(0, int((copies < due).sum()) - (self._sent - committed))
        if not often and not missing:
            return Finding("keeps", True, "none is missing, none is there too often")
        seen = f"without a fault {missing} of {committed} committed records are missing and {often} are there too often"
        return Finding("keeps", False, seen, "the job must deliver each record that it reads once, or as often as `expected` says")


def _drained(folder: RunFolder, job: Job, testbed: Testbed) -> pa.Table:
    """The identities of what was delivered, null where there is none."""
    writers.end_writers(folder)
    outputs.of(job).drain(folder, job, testbed, DRAIN_S)
    names = ["producer", "sequence"]
    empty = pa.schema([histories.DELIVERED.field(name) for name in names]).empty_table()
    return pa.concat_tables([empty, *pieces(folder.delivered, names)])


def _listed(names: set[str]) -> str:
    return first(sorted(names)[:SHOWN_NAMES], len(names))
