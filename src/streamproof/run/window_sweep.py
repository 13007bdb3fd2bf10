"""``streamproof sweep FILE``: break a job in each of its windows, whoever wrote it.

A run without faults shows the windows (:mod:`streamproof.jobs.windows`). Then the driver is killed in each of them, as the job begins and
while it is at work; each message that changes something is lost once, its answer, and the request itself, then all of its kind until
the job has noticed, and is answered by an error; the driver is asked to end while it has read a part of a batch; and after each step it
stands still while another start takes its place, and wakes up beside it. At last the starts that took over are killed too, in what they do
and the job at work does not. Several of these faults share a run as long as all goes well. Where a run fails, its faults get runs of their
own until one fails, so that it is known what broke the job.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from streamproof import settings
from streamproof.evidence.folder import RunFolder, write_atomically
from streamproof.experiment.model import Experiment, FaultSpec, Phase
from streamproof.experiment.room import LATEST_IMPACT_SHARE
from streamproof.experiment.schedule import LEAST_STEADY
from streamproof.faults import FAULTS
from streamproof.jobs import windows
from streamproof.jobs.profile import JobProfile, Role
from streamproof.jobs.windows import Window
from streamproof.run import runner
from streamproof.run.sweep import table
from streamproof.run.windows import Look, in_recovery
from streamproof.run.windows import look as windows_of
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.verdict import Injection, Verdict, decided

RECORDS = 6000
BATCHES = 24
TOGETHER = 4
"""How many faults share a run, besides one as the job begins."""
AT = 0.3
"""From which share of the records on they are injected, one after the other."""
TRIES = 2
LINGER_S = 5.0
SELDOM, LASTING_S = 0.25, 60.0
"""A job that commits less than so often in a batch does it by time. Then a run lasts so long without faults, in s."""
PATIENCE_S = 60.0
"""How long the one message is refused at most by which a job delivers: what tries again for a while gives up before, or is not tried."""
RECOVERIES = 6
"""In so many windows of their recovery starts are killed."""
LATEST_MS = 5000
END_TXN, OF_TRANSACTIONS = "EndTxn", ("Produce", "TxnOffsetCommit")
KILL, TWIN, STOP = "kill_at_window", "twin_driver", "stop_driver"
HALF_A_BATCH, STOPS = "half a batch", 2
LOSE_ANSWER, DROP_REQUEST, REFUSE, LATE, ERROR = "lose_answer", "drop_request", "refuse_messages", "late_request", "error_answer"
TABLE = "windows.md"
AT_WINDOWS = (KILL, TWIN)
OF_ONE_MESSAGE = (LOSE_ANSWER, DROP_REQUEST, LATE, ERROR)
OF_MESSAGES = ("Produce", "OffsetCommit", "TxnOffsetCommit", "EndTxn", "COMMIT", "PREPARE TRANSACTION", "COMMIT PREPARED")
"""Messages whose answers are worth losing wherever they come; a statement that changes a table is one too."""
INJECTION = re.compile(r"\b[a-z_]+-\d+\b")
log = logging.getLogger("streamproof.run.window_sweep")


@dataclass(frozen=True)
class Crash:
    """One fault at one place: ``where`` is a window, or the message that is lost."""

    fault: str
    where: str
    nth: int = 1
    """Which message of its kind, where several steps are of one kind."""
    linger_s: float = 0.0
    """How long the message at the window's end is held before the kill."""
    phase: Phase = Phase.IMPACT
    until: str = ""
    """After which message the late one is delivered."""
    seconds: float = 0.0
    """How long messages are refused at most; 0 for as long as the fault does by itself."""
    then: str = ""
    """In which window the start that takes over is killed too."""

    @property
    def label(self) -> str:
        """What is done, in words."""
        when = " as the job begins" if self.phase is Phase.START else f" after the next {self.until}" if self.until else ""
        after = f" {self.linger_s:g} s later" if self.linger_s else f" for {self.seconds:g} s at most" if self.seconds else ""
        again = f", and again in recovery at {self.then}," if self.then else ""
        return f"{self.fault}{after}{when}{again}"

    @property
    def spec(self) -> FaultSpec:
        trigger: dict[str, Any] = {"phase": self.phase} if self.phase is Phase.START else {"at": AT}
        return FaultSpec(fault=self.fault, parameters=self._parameters(), **trigger)

    @property
    def batches(self) -> int:
        """How many micro-batches it needs."""
        fault = FAULTS[self.fault]
        return fault.batches(fault.parameters_model.model_validate(self._parameters()))

    def _parameters(self) -> dict[str, Any]:
        if self.fault in AT_WINDOWS:
            linger = {"linger_s": self.linger_s} if self.linger_s else {}
            return {"window": self.where, **linger, **({"then": self.then} if self.then else {})}
        if self.fault == STOP:
            return {}
        kind = windows.kind(self.where)
        table = self.where.removeprefix(kind).partition(",")[0].strip() if kind in windows.OF_TABLES else ""
        return {
            "message": kind,
            "nth": self.nth,
            **({"sql": table} if table else {}),
            **({"until": self.until, "delay_ms": LATEST_MS} if self.until else {}),
            **({"seconds": self.seconds} if self.seconds else {}),
            **({"kind": "fatal" if kind in windows.CHANGING else "retriable"} if self.fault == ERROR else {}),
        }


@dataclass(frozen=True)
class Result:
    """What a crash showed. ``hit`` says whether the fault took effect there; ``blamed`` how many records' blame names it; ``beside`` which
    others its run had, where it needed them to break the job."""

    crash: Crash
    outcome: str
    reason: str
    found: dict[str, int]
    hit: bool
    run: str
    blamed: int = 0
    beside: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """What was done, and where."""
        where = f"{self.crash.label} at {self.crash.where}"
        return (
            where
            if not self.beside
            else f"{where} or by {', '.join(self.beside)}, all in one run ({self.run}); none of them broke it alone"
        )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self.crash), **{name: value for name, value in asdict(self).items() if name != "crash"}}


@dataclass(frozen=True)
class Sweep:
    """All of it. ``known`` are the windows of the job, ``planned`` is how many faults there were to be tried."""

    known: tuple[Window, ...]
    results: tuple[Result, ...]
    planned: int
    once: tuple[str, ...] = ()
    """Steps that the job did only once: beside them nothing was tried."""
    without: dict[str, int] = field(default_factory=dict)
    """What was found without any fault: then none was tried."""

    @property
    def hit(self) -> frozenset[str]:
        """The windows in which the job was killed."""
        return frozenset(result.crash.where for result in self.results if result.hit and result.crash.fault == KILL)

    @property
    def outcome(self) -> RunOutcome:
        outcomes = {result.outcome for result in self.results} | ({RunOutcome.FAILED} if self.without else set())
        for worst in (RunOutcome.ABORTED, RunOutcome.FAILED, RunOutcome.ERROR):
            if worst in outcomes:
                return worst
        return RunOutcome.PASSED if self.known and len(self.hit) == len(self.known) else RunOutcome.INCONCLUSIVE

    @property
    def reason(self) -> str:
        if self.without:
            return f"{_listed(self.without)} without any fault: none was tried"
        broken = [f"{_listed(result.found)} by {result.told}" for result in self.results if result.outcome == RunOutcome.FAILED]
        if len(self.results) < self.planned:
            return "; ".join([", ".join(broken) or "stopped", f"{len(self.results)} of {self.planned} faults tried"])
        missed = [window.name for window in self.known if window.name not in self.hit]
        others = [result.told for result in self.results if not result.hit and result.crash.where not in missed]
        said = {"never hit": missed, "not shown": others, "done only once, so nothing was tried beside it": self.once}
        more = [f"{what}: {', '.join(f'`{one}`' for one in these)}" for what, these in said.items() if these]
        return "; ".join(filter(None, [", ".join(broken), self._covered, *more]))

    @property
    def _covered(self) -> str:
        """What was tried, and took effect."""
        hit = [result.crash for result in self.results if result.hit]
        lost = sum(crash.fault not in (*AT_WINDOWS, ERROR, STOP) for crash in hit)
        errors, stops, twins = (sum(crash.fault == fault for crash in hit) for fault in (ERROR, STOP, TWIN))
        again = sum(bool(crash.then) for crash in hit)
        in_recovery = f" and {again} of its recovery" if again else ""
        killed = f"killed in {len(self.hit)} of {len(self.known)} windows{in_recovery}"
        return f"{killed}, messages lost in {lost} ways, {errors} answered by errors, asked to end {stops} times, {twins} twins"

    def to_dict(self) -> dict[str, Any]:
        known = [{"window": window.name, **asdict(window), "hit": window.name in self.hit} for window in self.known]
        results = [result.to_dict() for result in self.results]
        told = {"outcome": self.outcome, "reason": self.reason, "planned": self.planned, "once": list(self.once)}
        return {**told, "without_faults": self.without, "windows": known, "results": results}


def _listed(found: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in found.items()) or "nothing"


def experiment_for(given: Experiment, seed: int, what: str = "sweep", batches: int = BATCHES) -> Experiment:
    """The same job on a workload of so many micro-batches, each of at most ``RECORDS`` / ``BATCHES`` records, traced, without faults.
    ``what`` begins its name."""
    name = f"{what}-{given.name}"[:60]
    records = batches * (RECORDS // BATCHES)
    batch = given.batch_records or max(10, min(records, given.workload.records) // batches)
    return given.without_faults(name, records, trace=True, batch_records=batch, seed=seed)


def crashes(seen: Look, profile: JobProfile, batches: int = BATCHES, late: bool = False) -> list[list[Crash]]:
    """What is tried, the faults of a run each. A run has so many ``batches``; ``late`` commits of transactions are tried when asked for.

    A kill in each window while the job is at work, and one as it begins. Of each message that changes something an answer that is lost (the
    server has done it), a request that is (it has not), and all of its kind; of those by which the job delivers for as long as many a
    client tries again. Of each an error in place of the answer: of Kafka's one for good, of a statement one after which it should be tried
    again. Twice the driver is asked to end. A kill in each window after what the job does beside has had time to go on. After each step a
    driver that stands still.
    """
    known = seen.windows
    steps = dict.fromkeys(step for window in known for step in (window.after, window.before) if not windows.is_file(step))
    lost = [step for step in steps if windows.kind(step) in (*OF_MESSAGES, *windows.OF_TABLES) and step == step.partition(" to ")[0]]
    of_kind = [windows.kind(step) for step in lost]
    nth = [1 + of_kind[:number].count(kind) for number, kind in enumerate(of_kind)]
    messages = [Crash(fault, *where) for fault in (LOSE_ANSWER, DROP_REQUEST) for where in zip(lost, nth, strict=True)]
    kinds = list(dict.fromkeys(of_kind))
    of_kafka, of_postgres = ([kind for kind in kinds if (kind in windows.CHANGING) == kafka] for kafka in (True, False))
    delivering = {*of_kafka[:1], *of_postgres[-1:]}
    refused = [Crash(REFUSE, kind, seconds=PATIENCE_S if kind in delivering else 0.0) for kind in kinds]
    changes = [*seen.statements, *(step for step in lost if windows.kind(step) in windows.OF_TABLES)]
    errors = [Crash(ERROR, what) for what in dict.fromkeys([*of_kafka, *changes])]
    kills = [Crash(KILL, window.name) for window in known]
    lingering = [Crash(KILL, window.name, linger_s=LINGER_S) for window in known if not windows.is_file(window.before)]
    of_messages = [window for window in known if windows.edge(window.name) is not None]
    twins = [Crash(TWIN, window.name) for window in _begun(of_messages)]
    lates = [Crash(LATE, END_TXN, until=step) for step in steps if late and END_TXN in steps and step in OF_TRANSACTIONS]
    stops = [Crash(STOP, HALF_A_BATCH)] * STOPS
    at_work = [*kills, *lates, *messages, *errors, *refused, *stops, *lingering, *(() if Role.EXECUTORS in profile.roles else twins)]
    first = [Crash(KILL, window.name, phase=Phase.START) for window in of_messages]
    runs = list(_shared(at_work, (LATEST_IMPACT_SHARE - AT) * batches))
    for run in runs:  # each has one as it begins, where there is room for it
        if first and sum(each.batches for each in run) <= _room_beside(first[0], batches):
            run.insert(0, first.pop(0))
    return [*runs, *([crash] for crash in first)]


def planned(experiment: Experiment, seen: Look, late: bool) -> list[list[Crash]]:
    """What is tried on the experiment's job, the faults of a run each."""
    return crashes(seen, experiment.profile, experiment.batches, late)


def _recoveries(experiment: Experiment, known: Sequence[Window], results: Sequence[Result]) -> list[list[Crash]]:
    """What is tried once more, by what the starts did that took over: those are killed in windows that the job at work does not pass."""
    at_work, found = {window.name for window in known}, dict[str, str]()
    for run in dict.fromkeys(result.run for result in results):
        for window, first in in_recovery(RunFolder.open(settings.runs() / run), KILL):
            if window not in at_work and first in at_work:
                found.setdefault(window, first)
    kills = [Crash(KILL, first, then=window) for window, first in list(found.items())[:RECOVERIES]]
    return list(_shared(kills, (LATEST_IMPACT_SHARE - AT) * experiment.batches))


def _room_beside(first: Crash, batches: int) -> float:
    """How many batches are left for the others of a run that begins with a crash."""
    return (LATEST_IMPACT_SHARE - LEAST_STEADY) * batches - first.batches - AT / 2 * batches


def _shared(crashes: Sequence[Crash], room: float) -> Iterator[list[Crash]]:
    """As many as a run has room for, in their order."""
    run = list[Crash]()
    for crash in crashes:
        if run and (len(run) == TOGETHER or sum(each.batches for each in run) + crash.batches > room):
            yield run
            run = []
        run.append(crash)
    if run:
        yield run


def _begun(known: Sequence[Window]) -> list[Window]:
    """A window for each step that begins one. Between two steps of the same name it is not known which of them is the last."""
    first: dict[str, Window] = {}
    for window in known:
        if window.after != window.before:
            first.setdefault(window.after, window)
    return list(first.values())


Say = Callable[[Result, int, int], None]


def sweep(
    experiment: Experiment, look: Callable[[Sequence[Window]], None], say: Say, keep_going: bool = False, late: bool = False
) -> Sweep:
    """Look at the job, then break it, until a fault did or, to ``keep_going``, with each fault. ``look`` gets the windows, ``say`` each
    result with its number and how many there will be. ``late`` commits of transactions are tried when asked for.

    A job that breaks its promise without any fault is not broken further. Raises BadInput when its run without faults comes to no verdict.
    """
    experiment, seen = looked_at(experiment)
    look(seen.windows)
    if seen.found:
        return Sweep(seen.windows, (), 0, without=seen.found)
    results, count = list[Result](), 0
    for then in (False, True):
        runs = _recoveries(experiment, seen.windows, results) if then else planned(experiment, seen, late)
        count += sum(map(len, runs))
        for run in runs:
            for result in _results(experiment, run, keep_going):
                results.append(result)
                say(result, len(results), count)
            outcomes = {result.outcome for result in results}
            if RunOutcome.ABORTED in outcomes or (RunOutcome.FAILED in outcomes and not keep_going):
                return Sweep(seen.windows, tuple(results), count, seen.once)
    return Sweep(seen.windows, tuple(results), count, seen.once)


def looked_at(experiment: Experiment) -> tuple[Experiment, Look]:
    """What a run without faults shows of the job, and the experiment by which it is broken then: on a slower workload where it commits by
    time. Raises BadInput when such a run comes to no verdict."""
    seen = windows_of(experiment)
    slower = None if seen.found else _slower(experiment, seen)
    return (experiment, seen) if slower is None else (slower, windows_of(slower))


def _slower(experiment: Experiment, seen: Look) -> Experiment | None:
    """The experiment of a job that commits by time, not by batch, on a workload that lasts; None for any other. Between two of its commits
    the whole workload would be read."""
    batches, workload = experiment.batches, experiment.workload
    if not seen.commits or seen.commits > SELDOM * batches or workload.rate_per_s:
        return None
    rate = max(1, round(workload.records / LASTING_S))
    log.warning(
        "it committed %d times in %d batches, so by time: looking again, at %d records a second (`rate_per_s` says another)",
        seen.commits,
        batches,
        rate,
    )
    slower = experiment.model_dump(by_alias=True)
    return Experiment.model_validate({**slower, "workload": {**slower["workload"], "rate_per_s": rate}})


def _results(experiment: Experiment, together: Sequence[Crash], keep_going: bool) -> Iterator[Result]:
    """Of each fault. Those that missed are tried again alone, and so are all of a run that failed, the most blamed first, until one of them
    fails."""
    first = sorted(_run(experiment, together), key=lambda result: -result.blamed)
    if first[0].outcome == RunOutcome.ABORTED:
        yield first[0]
        return
    broken = None
    for result in first:
        if broken is not None and not keep_going:
            return
        settled = result.hit and (result.outcome == RunOutcome.PASSED or len(together) == 1)
        if result.crash.then and not result.hit:  # a recovery may go another way each time
            settled = result.outcome in (RunOutcome.PASSED, RunOutcome.INCONCLUSIVE)
        alone = result if settled else _alone(experiment, result.crash)
        broken = alone if alone.outcome == RunOutcome.FAILED else broken
        if result is first[-1] and broken is None and result.outcome == RunOutcome.FAILED:  # it takes several of them
            alone = replace(result, beside=tuple(other.told for other in first[:-1]))
        yield alone
        if alone.outcome == RunOutcome.ABORTED:
            return


def _alone(experiment: Experiment, crash: Crash) -> Result:
    """A crash in a run of its own, again when it missed."""
    for _ in range(TRIES):
        (result,) = _run(experiment, [crash])
        if result.outcome not in (RunOutcome.INCONCLUSIVE, RunOutcome.ERROR):
            break
        log.warning("%s at %s: %s; again", crash.fault, crash.where, result.reason)
    return result


def _run(experiment: Experiment, together: Sequence[Crash]) -> list[Result]:
    folder = run_with(experiment, faults=[crash.spec.model_dump(mode="json") for crash in together])
    verdict = _of_what_was_hit(Verdict.read(folder))
    blamed = _blamed(folder)
    injections = {(injection.fault, injection.phase, _where(injection)): injection.injection for injection in verdict.injections}
    places = [(crash, injections.get((crash.fault, crash.phase, _where_of(crash)))) for crash in together]
    outcome, reason, broken = verdict.outcome, verdict.reason, verdict.broken
    return [
        Result(crash, outcome, reason, broken, name is not None, folder.name, blamed[name] if name is not None else 0)
        for crash, name in places
    ]


def run_with(experiment: Experiment, **changed: Any) -> RunFolder:
    """Run an experiment of which some keys are changed, and judge it."""
    from streamproof.suites.evaluate import evaluate

    return runner.run(Experiment.model_validate({**experiment.model_dump(by_alias=True), **changed}), evaluate=evaluate)


def _blamed(folder: RunFolder) -> Counter[str]:
    """How often the blame of a record names each injection."""
    if not folder.reconciliation.exists():
        return Counter()
    rows = pq.read_table(folder.reconciliation, columns=["blame"]).column("blame").to_pylist()
    return Counter(name for blame in rows if blame for name in INJECTION.findall(blame))


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
    write_atomically(folder / TABLE, f"{sweep.outcome}: {sweep.reason}\n\n{table(rows)}")
