"""``streamproof sweep FILE``: break a job in each of its windows, whoever wrote it.

A run without faults shows the windows (:mod:`streamproof.jobs.windows`). Then the driver is killed in each of them, and each message that
changes something is lost once: its answer, and the request itself. Several of these faults share a run as long as all goes well. Where a
run fails, each of its faults gets a run of its own, so that it is known which of them broke the job.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from streamproof.evidence.folder import write_atomically
from streamproof.experiment.model import Experiment, FaultSpec
from streamproof.faults import FAULTS
from streamproof.jobs import windows
from streamproof.jobs.windows import Window
from streamproof.run import runner
from streamproof.run.sweep import table
from streamproof.run.windows import seen
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.verdict import Injection, Verdict, decided

RECORDS = 6000
BATCHES = 24
TOGETHER = 3
"""How many faults share a run."""
TRIES = 2
LINGER_S = 1.0
OF_ONE_MESSAGE = ("lose_answer", "drop_request")
OF_MESSAGES = ("Produce", "OffsetCommit", "TxnOffsetCommit", "EndTxn", "COMMIT", "PREPARE TRANSACTION", "COMMIT PREPARED")
"""Messages whose answers are worth losing wherever they come; a statement that changes a table is one too."""
log = logging.getLogger("streamproof.run.window_sweep")


@dataclass(frozen=True)
class Crash:
    """One fault at one place: ``where`` is a window, or the message whose answer is lost."""

    fault: str
    where: str
    nth: int = 1
    """Which message of its kind, where several steps are of one kind."""
    linger_s: float = 0.0
    """How long the message at the window's end is held before the kill."""

    @property
    def label(self) -> str:
        """What is done, in words."""
        return f"{self.fault} {self.linger_s:g} s later" if self.linger_s else self.fault

    @property
    def spec(self) -> FaultSpec:
        if self.fault == "kill_at_window":
            return FaultSpec(fault=self.fault, parameters={"window": self.where, "linger_s": self.linger_s})
        kind = windows.kind(self.where)
        table = self.where.removeprefix(kind).strip() if kind in windows.OF_TABLES else ""
        return FaultSpec(fault=self.fault, parameters={"message": kind, "nth": self.nth, **({"sql": table} if table else {})})


@dataclass(frozen=True)
class Result:
    """What a crash showed. ``hit`` says whether the fault took effect there."""

    crash: Crash
    outcome: str
    reason: str
    found: dict[str, int]
    hit: bool
    run: str

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self.crash), **{name: value for name, value in asdict(self).items() if name != "crash"}}


@dataclass(frozen=True)
class Sweep:
    """All of it. ``known`` are the windows of the job."""

    known: tuple[Window, ...]
    results: tuple[Result, ...]

    @property
    def hit(self) -> frozenset[str]:
        """The windows in which the job was killed."""
        return frozenset(result.crash.where for result in self.results if result.hit and result.crash.fault == "kill_at_window")

    @property
    def outcome(self) -> RunOutcome:
        outcomes = {result.outcome for result in self.results}
        for worst in (RunOutcome.ABORTED, RunOutcome.FAILED, RunOutcome.ERROR):
            if worst in outcomes:
                return worst
        return RunOutcome.PASSED if self.known and len(self.hit) == len(self.known) else RunOutcome.INCONCLUSIVE

    @property
    def reason(self) -> str:
        covered = f"killed in {len(self.hit)} of {len(self.known)} windows, {self.lost} answers and requests lost"
        broken = [f"{_listed(result.found)} by {result.crash.label} at {result.crash.where}" for result in self.results if result.found]
        missed = [window.name for window in self.known if window.name not in self.hit]
        return "; ".join(filter(None, [covered, ", ".join(broken), f"never hit: {', '.join(missed)}" if missed else ""]))

    @property
    def lost(self) -> int:
        return sum(result.hit and result.crash.fault in OF_ONE_MESSAGE for result in self.results)

    def to_dict(self) -> dict[str, Any]:
        known = [{"window": window.name, **asdict(window), "hit": window.name in self.hit} for window in self.known]
        results = [result.to_dict() for result in self.results]
        return {"outcome": self.outcome, "reason": self.reason, "windows": known, "results": results}


def _listed(found: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in found.items()) or "nothing"


def experiment_for(given: Experiment, seed: int) -> Experiment:
    """The same job on a workload of at most ``RECORDS``, in ``BATCHES`` micro-batches, traced, without faults."""
    name = f"sweep-{given.label}".lower().replace("_", "-")[:60]
    batch = given.batch_records or max(10, min(RECORDS, given.workload.records) // BATCHES)
    return given.without_faults(name, RECORDS, trace=True, batch_records=batch, seed=seed)


def crashes(known: Sequence[Window]) -> list[Crash]:
    """What is tried: a kill in each window; of each message that changes something an answer that is lost (the server has done it) and a
    request that is (it has not); and a kill in each window after what the job does beside has had time to go on."""
    steps = dict.fromkeys(step for window in known for step in (window.after, window.before) if not windows.is_file(step))
    lost = [step for step in steps if windows.kind(step) in (*OF_MESSAGES, *windows.OF_TABLES) and step == step.partition(" to ")[0]]
    of_kind = [windows.kind(step) for step in lost]
    nth = [1 + of_kind[:number].count(kind) for number, kind in enumerate(of_kind)]
    messages = [Crash(fault, *where) for fault in OF_ONE_MESSAGE for where in zip(lost, nth, strict=True)]
    kills = [Crash("kill_at_window", window.name) for window in known]
    lingering = [Crash("kill_at_window", window.name, linger_s=LINGER_S) for window in known if not windows.is_file(window.before)]
    return [*kills, *messages, *lingering]


Say = Callable[[Result, int, int], None]


def sweep(experiment: Experiment, look: Callable[[Sequence[Window]], None], say: Say) -> Sweep:
    """Look at the job, then break it. ``look`` gets the windows, ``say`` each result with its number and how many there will be.

    Raises BadInput when its run without faults does not go well.
    """
    known = seen(experiment)
    look(known)
    every, results = crashes(known), []
    for result in _results(experiment, every):
        results.append(result)
        say(result, len(results), len(every))
        if result.outcome == RunOutcome.ABORTED:
            break
    return Sweep(tuple(known), tuple(results))


def _results(experiment: Experiment, every: Sequence[Crash]) -> Iterator[Result]:
    for begin in range(0, len(every), TOGETHER):
        together = every[begin : begin + TOGETHER]
        first = _run(experiment, together)
        for result in first:
            settled = result.outcome == RunOutcome.ABORTED or (result.hit and (result.outcome == RunOutcome.PASSED or len(together) == 1))
            yield result if settled else _alone(experiment, result.crash)


def _alone(experiment: Experiment, crash: Crash) -> Result:
    """A crash in a run of its own, again when it missed."""
    for _ in range(TRIES):
        (result,) = _run(experiment, [crash])
        if result.outcome not in (RunOutcome.INCONCLUSIVE, RunOutcome.ERROR):
            break
        log.warning("%s at %s: %s; again", crash.fault, crash.where, result.reason)
    return result


def _run(experiment: Experiment, together: Sequence[Crash]) -> list[Result]:
    from streamproof.suites.evaluate import evaluate

    faults = [crash.spec.model_dump(mode="json") for crash in together]
    planned = Experiment.model_validate({**experiment.model_dump(by_alias=True), "faults": faults})
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{experiment.name}"
    folder = runner.run(planned, name, evaluate=evaluate)
    verdict = _of_what_was_hit(Verdict.read(folder))
    found = {str(anomaly): count for anomaly, count in verdict.anomalies.items() if count and anomaly in verdict.forbidden}
    hit = {(injection.fault, _where(injection)) for injection in verdict.injections}
    return [
        Result(crash, verdict.outcome, verdict.reason, found, (crash.fault, _where_of(crash)) in hit, folder.name) for crash in together
    ]


def _of_what_was_hit(verdict: Verdict) -> Verdict:
    """What the verdict is without the faults that missed: they are tried again."""
    hit = tuple(injection for injection in verdict.injections if injection.took_effect)
    if verdict.outcome is not RunOutcome.INCONCLUSIVE or not hit or len(hit) == len(verdict.injections):
        return verdict.model_copy(update={"injections": hit})
    return decided(verdict.model_copy(update={"injections": hit}))


def _where(injection: Injection) -> str:
    return json.dumps(injection.parameters, sort_keys=True)


def _where_of(crash: Crash) -> str:
    """The same of a crash that is planned: with all of its fault's parameters."""
    spec = crash.spec
    return json.dumps(FAULTS[spec.fault].parameters_model.model_validate(spec.parameters).model_dump(mode="json"), sort_keys=True)


def write(folder: Path, sweep: Sweep) -> None:
    """The table of a sweep, as Markdown."""
    head = ["fault", "at", "found", "outcome", "run"]
    rows = [head, ["---"] * len(head)]
    rows += [[one.crash.label, f"`{one.crash.where}`", _listed(one.found), one.outcome, one.run] for one in sweep.results]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "windows.md", f"{sweep.outcome}: {sweep.reason}\n\n{table(rows)}")
