"""The command line: ``streamproof``.

Exit codes: 0 PASSED (or done), 1 FAILED, 2 bad input, 3 INCONCLUSIVE or ERROR, 130 ABORTED.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from streamproof import extras, settings
from streamproof.cli.attended import AttendedOption
from streamproof.cli.component_command import component
from streamproof.cli.doctor_command import doctor
from streamproof.cli.explore_command import explore
from streamproof.cli.history_commands import compare, history_app, metrics
from streamproof.cli.init_command import init
from streamproof.cli.record_command import record
from streamproof.cli.running import EXIT_CODES, WaitOption, only_warnings, prepared
from streamproof.cli.terminal import COLOURS, WIDE, JsonOption, out, say
from streamproof.cli.window_sweep import sweep_job
from streamproof.cli.windows_command import windows
from streamproof.engines.spark.registry import PIPELINES, STRATEGIES
from streamproof.errors import BadInput
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.journal import PhaseBegan, StageStarted
from streamproof.experiment import catalogue, model
from streamproof.experiment.model import Experiment
from streamproof.experiment.reading import explain
from streamproof.experiment.schedule import Injection, Schedule
from streamproof.experiment.schedule import plan as make_plan
from streamproof.faults import FAULTS
from streamproof.history.record import HistoryError
from streamproof.jobs.failpoint import Failpoint
from streamproof.testbed import embedded, hosts
from streamproof.testbed.install import SetupError
from streamproof.testbed.process import TestbedError
from streamproof.verdict.decide import RunOutcome
from streamproof.verdict.guarantee import allowed, forbidden
from streamproof.verdict.verdict import Verdict

if TYPE_CHECKING:
    from streamproof.run.sweep import Result

BAD_INPUT = 2
SHOWN_WINDOWS = 3
SHOWN_RECORDS = 10
JSON_RECORDS = 1000

app = typer.Typer(
    help="Break a streaming pipeline on purpose, and prove record by record what it delivered.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
testbed_app = typer.Typer(help="The embedded testbed: Kafka, Toxiproxy and Spark on this machine.", no_args_is_help=True)
app.add_typer(testbed_app, name="testbed")
app.add_typer(history_app, name="history")
app.command()(init)
app.command()(doctor)
app.command()(windows)
app.command()(explore)
app.command()(record)
app.command()(compare)
app.command()(metrics)
app.command(hidden=True)(component)

FileArgument = Annotated[Path, typer.Argument(help="An experiment as YAML; the project's are in chaos/.")]
SeedOption = Annotated[int | None, typer.Option(help="Instead of the file's seed.", min=0, max=model.MAX_SEED)]
RunArgument = Annotated[str, typer.Argument(help="A run: its folder, or its name in the runs' folder.")]
SparkOption = Annotated[
    str | None,
    typer.Option(
        metavar="MASTER",
        help="Have a Spark job compare the histories: on the testbed's own Spark (testbed), in this process (local[N]), or on a cluster "
        "whose machines see the runs' folder under the same path (spark://HOST:PORT).",
    ),
]


@app.command()
def run(
    file: FileArgument,
    seed: SeedOption = None,
    baseline: Annotated[bool, typer.Option("--baseline", help="Compare it with the same run without faults, which runs first.")] = False,
    spark: SparkOption = None,
    wait_s: WaitOption = 0,
    attended: AttendedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run an experiment and say what was delivered."""
    from streamproof.run import runner, spark_check

    experiment = _experiment(file, seed)
    if spark is not None:
        counted = experiment.profile.expected is not None
        spark_check.preflight(spark, stateful=experiment.of_results, counted=counted)
    with prepared(wait_s, attended, as_json):
        say(f"seed {experiment.seed}")
        beside = _baseline(experiment, as_json) if baseline else None
        with _progress(experiment):
            folder = runner.run(experiment, baseline=beside, spark=spark)
    _end(folder, as_json)


def _baseline(experiment: Experiment, as_json: bool) -> RunFolder:
    """The same run without faults: one that was run before, or run now. Leaves with its exit code when it does not pass."""
    from streamproof.run import baseline, runner

    unfaulted = baseline.without_faults(experiment)
    folder = baseline.find(unfaulted)
    if folder is not None:
        say(f"baseline: {folder.name}, which passed before")
        return folder
    say("baseline: the same run without faults")
    with _progress(unfaulted):
        folder = runner.run(unfaulted)
    verdict = Verdict.read(folder)
    if not verdict.as_expected:
        say("the run without faults did not pass, so there is nothing to compare with; no fault was injected", style="yellow")
        _end(folder, as_json)
    say(f"baseline: {folder.name} PASSED")
    return folder


@app.command()
def sweep(
    strategy: Annotated[
        list[str] | None, typer.Argument(help="The strategies, all when absent; or FILE.yaml: a job, or an experiment with one.")
    ] = None,
    step: Annotated[list[str] | None, typer.Option(help="Only crashes at this step; may be repeated.")] = None,
    seed: Annotated[int, typer.Option(help="Of every run.", min=0, max=model.MAX_SEED)] = 1,
    records: Annotated[int | None, typer.Option(help="Of every run of a strategy, 2400 when absent.", min=1200)] = None,
    dry: Annotated[
        bool,
        typer.Option("--dry", help="Only say what would be crashed, and what is predicted. Of a job, after one run without faults."),
    ] = False,
    keep_going: Annotated[
        bool,
        typer.Option("--keep-going", help="Of a job: try every fault, also once one has broken it; else that ends the sweep."),
    ] = False,
    alone: Annotated[
        bool, typer.Option("--alone", help="Of strategies: each crash in a run of its own, also where nothing may be seen of several.")
    ] = False,
    late: Annotated[
        bool,
        typer.Option("--late", help="Of a job: also let commits of Kafka's transactions arrive late. Clients without KIP-890 double then."),
    ] = False,
    wait_s: WaitOption = 0,
    attended: AttendedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Crash each strategy at each step of its protocol, and hold what was delivered against what it predicts; or break a job in each of its
    windows, as seen from outside.

    Exit code 1 when a prediction was wrong or a crash could not be shown, or the job failed; 3 when a window of it was never hit.
    """
    from streamproof.run import sweep as sweeping

    if strategy and any(Path(name).suffix in (".yaml", ".yml") for name in strategy):
        if len(strategy) > 1:
            raise BadInput(f"sweep: expected strategies, or one file with a job, came {', '.join(strategy)}")
        if step or records is not None:
            raise BadInput(
                "sweep: --step and --records are for strategies: a job says its records in its file, and is broken in each window"
            )
        with prepared(wait_s, attended, as_json):
            sweep_job(Path(strategy[0]), seed, keep_going, late, as_json, dry)

    scenarios = sweeping.scenarios(strategy, step)
    if dry:
        for scenario in scenarios:
            then = f", then {scenario.then}" if scenario.then else ""
            must = ", ".join([*scenario.must, *(f"perhaps {name}" for name in scenario.may)]) or "nothing"
            say(f"{scenario.strategy}: {scenario.action} at {scenario.step}{then}: {must}")
        say(f"{len(scenarios)} crashes in {len(sweeping.grouped(scenarios, 1 if alone else sweeping.TOGETHER))} runs")
        return
    only_warnings()
    begun = time.monotonic()

    def show(result: sweeping.Result, number: int, total: int) -> None:
        scenario, anomalies = result.scenario, ", ".join(f"{count} {name}" for name, count in result.found.items()) or "nothing"
        word = ("as predicted", "green") if result.as_predicted else (f"NOT as predicted: {result.reason}", "red")
        then = f", then {scenario.then}" if scenario.then else ""
        what = f"{scenario.strategy}: {scenario.action} at {scenario.step}{then}"
        say(Text.assemble(f"{time.monotonic() - begun:6.0f} s  {number} of {total}  {what}: found {anomalies}, ", word))

    with prepared(wait_s, attended, as_json):
        embedded.up(lambda line: say(line))
        given = sweeping.RECORDS if records is None else records
        results, folder = sweeping.sweep(scenarios, seed, show, records=given, together=1 if alone else sweeping.TOGETHER)
    wrong = sum(not result.as_predicted for result in results)
    if as_json:
        print(json.dumps({"folder": str(folder), "wrong": wrong, "results": [result.to_dict() for result in results]}, indent=1))
    else:
        _show_sweep(results)
        say(f"{len(results) - wrong} of {len(results)} as predicted; the matrix: {folder / 'matrix.md'}")
    if any(result.outcome == RunOutcome.ABORTED for result in results):
        raise typer.Exit(EXIT_CODES[RunOutcome.ABORTED])
    raise typer.Exit(1 if wrong else 0)


def _show_sweep(results: list[Result]) -> None:
    from streamproof.run import sweep as sweeping

    if not out.is_terminal:
        out.width = WIDE
    table = Table(
        "strategy", "step", "by", "crash", "then", "predicted", "lost", "doubled", "recovery", "torn for", "outcome", "as predicted"
    )
    for result in results:
        table.add_row(*map(Text, sweeping.columns(result)))
    out.print(table)


@app.command()
def soak(
    strategy: Annotated[list[str] | None, typer.Argument(help="The strategies; two_phase_commit and postgres_ledger when absent.")] = None,
    seeds: Annotated[str, typer.Option(help="As in 1-20 or 3,7,9.")] = "1-20",
    records: Annotated[int, typer.Option(help="Of every run.", min=1200)] = 12_000,
    count: Annotated[int, typer.Option(help="Faults of every run.", min=1)] = 6,
) -> None:
    """Run each strategy under many random schedules, one run each.

    Exit code 1 when a run did not pass or left something behind: a process, a toxic, a transaction, a topic, the lock.
    """
    from streamproof.run import soak as soaking

    wanted = [(name, seed) for name in strategy or soaking.STRATEGIES for seed in soaking.seeds(seeds)]
    try:
        planned = [soaking.experiment(name, seed, records, count) for name, seed in wanted]
    except ValidationError as error:
        raise BadInput(explain(error, "soak")) from None
    only_warnings()
    embedded.up(lambda line: say(line))
    results: list[soaking.Soaked] = []
    for experiment in planned:
        results.append(soaking.soak(experiment))
        say(soaking.line(results[-1]))
        if results[-1].outcome == RunOutcome.ABORTED:
            raise typer.Exit(EXIT_CODES[RunOutcome.ABORTED])
    for line in soaking.table(results):
        say(line)
    raise typer.Exit(0 if all(each.well for each in results) else 1)


@app.command()
def shrink(run: RunArgument, dry: Annotated[bool, typer.Option("--dry", help="Only say what would be tried.")] = False) -> None:
    """Look for the smallest schedule that makes a run fail as this one did: run it again with ever fewer of its faults."""
    from streamproof.run import shrink as shrinking

    subject = shrinking.subject(_folder(run))
    count, kinds = len(subject.injections), ", ".join(sorted(subject.kinds))
    say(f"{subject.experiment.name}: {count} {'fault' if count == 1 else 'faults'}, {kinds}, seed {subject.experiment.seed}")
    if dry:
        for kept in shrinking.tries(subject):
            say(f"  {', '.join(kept) or 'no fault'}")
        say("one run each, in this order; the first that fails in the same way is gone on with, and these change")
        return
    only_warnings()
    embedded.up(lambda line: say(line))

    def show(attempt: shrinking.Try) -> None:
        word = ("fails in the same way", "red") if attempt.fails else (f"does not ({attempt.outcome})", "green")
        say(Text.assemble(f"  {', '.join(attempt.injections) or 'no fault'}: ", word, f"  {attempt.folders[-1]}"))

    try:
        result, attempts, folder = shrinking.shrink(subject, show)
    except shrinking.Stopped as stopped:
        say(f"stopped: {stopped}")
        raise typer.Exit(EXIT_CODES[RunOutcome.ABORTED]) from None
    names = ", ".join(spec.fault for spec in result.faults) or "no fault at all"
    say(Text.assemble((f"{len(result.faults)} of {count}", "bold"), f" suffice after {len(attempts)} tries: {names}"))
    say(f"{folder / 'smallest.yaml'}")


@app.command()
def check(run: RunArgument, as_json: JsonOption = False, spark: SparkOption = None) -> None:
    """Judge a run again, from the evidence in its folder alone. Writes nothing."""
    from streamproof.run import spark_check, stages
    from streamproof.verdict.ending import Ending
    from streamproof.verdict.judge import judge
    from streamproof.verdict.verdict import decided, ending

    folder = _folder(run)
    stored = Verdict.read(folder) if folder.verdict.exists() else None
    ended, spec = ending(folder, stored), stages.run_spec(folder)
    try:
        judgement = judge(folder, spec) if spark is None else spark_check.judged(folder, spec, spark)
        conflict = stages.disagreement(folder, judgement) if spark is None else None
    except EvidenceError as error:
        # A run that was stopped or broke need not have all its evidence.
        if ended == Ending():
            raise
        _leave(folder, decided(spec.account(), ended), [], as_json, [f"its records say nothing: {error}"])
    records = _anomalous(judgement.table)
    by_records = judgement.verdict
    account = by_records.with_expectations(stored)
    if spark is None:
        account = account.model_copy(update={"disagreement": conflict})
    verdict = decided(account, ended)
    lines = []
    if (verdict.outcome, verdict.reason) != (by_records.outcome, by_records.reason):
        lines = [f"its records alone say {by_records.outcome} ({by_records.reason}); but:"]
    elif stored is not None and stored.outcome is not verdict.outcome:
        lines = [f"the stored verdict says {stored.outcome} ({stored.reason}); the evidence says otherwise:"]
    _leave(folder, verdict, records, as_json, lines)


def _end(folder: RunFolder, as_json: bool) -> NoReturn:
    """Show how a run ended, and leave with its exit code."""
    verdict = Verdict.read(folder)
    if not as_json:
        _say_verdict(folder, verdict)
    records = _anomalous(pq.read_table(folder.reconciliation)) if folder.reconciliation.exists() else []
    _leave(folder, verdict, records, as_json, [])


def _anomalous(reconciliation: pa.Table) -> list[dict[str, Any]]:
    """The rows of anomalous records."""
    return [row for row in reconciliation.to_pylist() if row["row"] == "record"]


def _leave(folder: RunFolder, verdict: Verdict, records: list[dict[str, Any]], as_json: bool, lines: list[str]) -> NoReturn:
    """Show a verdict with its anomalous records, and leave with its exit code."""
    if as_json:
        document = {**verdict.to_json(), "folder": str(folder.path), "records": records[:JSON_RECORDS]}
        print(json.dumps(document, indent=1, default=str))
        raise typer.Exit(EXIT_CODES[verdict.outcome])
    for line in lines:
        say(line, style="yellow")
    for row in records[:SHOWN_RECORDS]:
        say(f"{row['anomaly']}: {row['blame']}")
    if len(records) > SHOWN_RECORDS:
        say(f"... and {len(records) - SHOWN_RECORDS} more; all are in {folder.reconciliation.name}")
    _say_verdict(folder, verdict)


@app.command()
def plan(file: FileArgument, seed: SeedOption = None, as_json: JsonOption = False) -> None:
    """Say what would be broken when. Touches nothing."""
    experiment = _experiment(file, seed)
    schedule = make_plan(experiment)
    if as_json:
        print(schedule.to_json())
        return
    source = experiment.workload.described
    say(f"{experiment.name}: {experiment.label} ({experiment.promised}), {source}, seed {experiment.seed}")
    say(f"  steady    until {schedule.steady_share:.0%} of the records are committed")
    for injection in schedule.injections:
        parameters = ", ".join(f"{key}={value}" for key, value in injection.parameters.items() if value is not None)
        described = f"{injection.injection} ({parameters})" if parameters else injection.injection
        say(f"  {injection.phase:8}  {_trigger(injection)}: {described}")
    if schedule.quiet:
        say(f"            between two faults {schedule.quiet if isinstance(schedule.quiet, str) else f'{schedule.quiet:.1%}'} without any")
    say(f"  recovery  from {schedule.impact_share:.0%} to the end")
    if experiment.expect:
        say(f"  a negative control: {', '.join(experiment.expect)} must be seen")


def _trigger(injection: Injection) -> str:
    """When a fault is injected, in words."""
    if injection.overlaps:
        when = "while the one before lasts"
    elif injection.batch is not None:
        when = f"after batch {injection.batch}, by {injection.at:.1%}"
    else:
        when = f"at {injection.at:.1%}"
    if injection.window is not None:
        return f"{when}, in the window {injection.window}"
    return when if injection.step is None else f"{when}, as the job reaches {injection.step}"


@app.command()
def faults(as_json: JsonOption = False) -> None:
    """List the faults, from their own code."""
    listed = [catalogue.describe(name) for name in FAULTS]
    if as_json:
        print(json.dumps(listed, indent=1))
        return
    for fault in listed:
        say(Text.assemble((fault["name"], "bold"), f": {fault['summary']}"))
        say(f"  target: {fault['target']}")
        for name, about in fault["parameters"].items():
            say(f"  {name} = {about['default']}: {about['description']}")
        say(f"  can be injected into {_jobs_of(fault)}")


def _jobs_of(fault: dict[str, Any]) -> str:
    """The jobs that a fault can be injected into, in words."""
    every = len(fault["strategies"]) == len(STRATEGIES)
    jobs = ["every strategy"] if every else list(fault["strategies"])
    if (which := catalogue.own_jobs(fault)) is not None:
        jobs.append(f"a job of your own {which}".rstrip())
    return ", ".join(jobs) or "no job"


@app.command()
def strategies(as_json: JsonOption = False) -> None:
    """List the commit strategies: what each promises, which anomalies that forbids and allows, at which steps it can be crashed, and what a
    crash there must show, or may."""
    if as_json:
        print(json.dumps([_describe_strategy(name) for name in STRATEGIES], indent=1))
        return
    for strategy in STRATEGIES.values():
        promised = strategy.guarantee, strategy.promises
        kept = ", ".join([strategy.guarantee, *sorted(strategy.promises)])
        say(Text.assemble((strategy.name, "bold"), f" ({kept}): {strategy.summary}"))
        say(f"  forbids {', '.join(sorted(forbidden(*promised)))}; allows {', '.join(sorted(allowed(*promised))) or 'none'}")
        for point in strategy.failpoints:
            say(f"  {point.name} ({point.at}): {point.window}; a crash there {_shows(point)}")


def _shows(point: Failpoint) -> str:
    """What a crash at a step shows, in words."""
    parts = [f"{word} show {', '.join(sorted(kinds))}" for word, kinds in (("must", point.provokes), ("may", point.allows)) if kinds]
    return " and ".join(parts) or "shows no anomaly"


def _describe_strategy(name: str) -> dict[str, Any]:
    strategy = STRATEGIES[name]
    points = [
        {"name": p.name, "at": p.at, "window": p.window, "provokes": sorted(p.provokes), "allows": sorted(p.allows)}
        for p in strategy.failpoints
    ]
    return {
        "name": name,
        "guarantee": strategy.guarantee,
        "promises": sorted(strategy.promises),
        "forbidden": sorted(forbidden(strategy.guarantee, strategy.promises)),
        "allowed": sorted(allowed(strategy.guarantee, strategy.promises)),
        "summary": strategy.summary,
        "failpoints": points,
        "document": (sys.modules[type(strategy).__module__].__doc__ or "").strip(),
    }


@app.command()
def pipelines() -> None:
    """List the pipelines."""
    for name, pipeline in PIPELINES.items():
        say(Text.assemble((name, "bold"), f": {(sys.modules[type(pipeline).__module__].__doc__ or '').strip()}"))


@app.command()
def setup(
    engine: Annotated[
        str | None, typer.Argument(help="An engine that runs beside Spark, as flink; what every run needs when absent.")
    ] = None,
) -> None:
    """Put in place what the testbed runs (Java, jars, Toxiproxy), and try it with one small job; or what an ENGINE needs. Needed once."""
    from streamproof.run import set_up

    if engine is None:
        set_up.set_up(lambda line: say(line))
    else:
        set_up.set_up_engine(engine, lambda line: say(line))


@app.command()
def heal(force: Annotated[bool, typer.Option("--force", help="Also end a run that seems to be alive.")] = False) -> None:
    """Clean up after runs that were killed: their drivers, toxics, failpoints, open transactions, topics and the lock."""
    from streamproof.run import healing, lock, stages

    if embedded.started() is None:
        say("no testbed is up: nothing to heal")
        return
    holder = lock.holder()
    if holder is not None and not lock.is_stale(holder) and not force:
        raise lock.TestbedBusy(f"run {holder.run} ({holder.folder}) seems to be at work: wait for it, or end it too with --force")
    left = healing.unrestored()
    for folder in left:
        stages.abort(folder, "healed after its runner was gone")
    names = sorted({folder.name for folder in left} | set(healing.heal_all()))
    embedded.up()
    say(f"healed {', '.join(names) if names else 'the testbed'}: no toxic, no driver, no open transaction of a run is left")


@app.command()
def down() -> None:
    """Stop everything that was started here: testbed, Airflow, runs."""
    say(f"ended {embedded.down()} processes")


@testbed_app.command("up")
def start_testbed(
    brokers: Annotated[int | None, typer.Option(help="Brokers of Kafka: 1 or 3; as it is, or 1, when absent.")] = None,
) -> None:
    """Start what is not running, and wait until all of it is ready. With another number of brokers Kafka is made anew."""
    from streamproof.run import lock

    if brokers not in (None, 1, 3):
        raise BadInput(f"--brokers: expected 1 or 3, came {brokers}")
    holder = lock.holder()
    if brokers is not None and holder is not None and len(embedded.up().kafka) != brokers:
        raise lock.TestbedBusy(f"run {holder.run} ({holder.folder}) holds the testbed: Kafka cannot be made anew under it")
    testbed = embedded.up(lambda line: say(line), brokers)
    say(f"Kafka {testbed.direct_kafka}, through proxies {testbed.driver_kafka} (driver) and {testbed.executors_kafka} (executors)")
    say(f"PostgreSQL {hosts.of('postgres')}:{testbed.postgres.direct}, through the proxy {testbed.links[embedded.POSTGRES_PROXY]}")
    say(f"{testbed.spark_master}; Toxiproxy {hosts.of('toxiproxy')}:{testbed.toxiproxy_port}")


@testbed_app.command("down")
def stop_testbed() -> None:
    """Stop the testbed (and Airflow, and every run)."""
    down()


@testbed_app.command("status")
def show_testbed(as_json: JsonOption = False) -> None:
    """Say which components are up. Exit code 3 when something that was started is not."""
    from streamproof.run import lock

    states = embedded.status()
    if as_json:
        print(json.dumps(states))
    elif not states:
        say("no testbed is up: `streamproof testbed up`")
    for name, state in states.items() if not as_json else ():
        say(f"{name}: {state}")
    holder = lock.holder()
    if holder is not None and not as_json:
        say(f"held by run {holder.run}{' (stale: `streamproof heal`)' if lock.is_stale(holder) else ''}")
    if any(state != "up" for state in states.values()):
        raise typer.Exit(3)


def _experiment(file: Path, seed: int | None) -> Experiment:
    experiment = model.load(file)
    try:
        return experiment.with_seed(seed)
    except ValidationError as error:
        raise BadInput(explain(error, "--seed")) from None


def _folder(name: str) -> RunFolder:
    path = Path(name)
    return RunFolder.open(path if path.exists() else settings.runs() / name)


def _say_verdict(folder: RunFolder, verdict: Verdict) -> NoReturn:
    """Print the verdict and leave with its exit code."""
    colour = COLOURS[verdict.outcome]
    for injection in verdict.injections:
        passed = sum(check.passed for check in injection.evidence)
        say(f"{injection.injection}: {passed} of {len(injection.evidence)} evidence checks passed")
    for line in _cost(verdict):
        say(line)
    say(Text.assemble((verdict.outcome, f"bold {colour}"), f": {verdict.reason}"))
    say(f"{folder.report if folder.report.exists() else folder.path}")
    raise typer.Exit(EXIT_CODES[verdict.outcome])


def _cost(verdict: Verdict) -> Iterator[str]:
    """What the faults cost, and beside the run without them; verdicts of older runs may not say."""
    for injection in verdict.injections:
        first, caught_up = injection.first_output_s, injection.caught_up_s
        if first is not None and caught_up is not None:
            yield f"{injection.injection}: new output after {first:.1f} s, the backlog was gone after {caught_up:.1f} s"
    if verdict.baseline is not None:
        ratios = verdict.baseline.ratios
        rates = ", ".join(f"{phase} {_times(ratio)}" for phase, ratio in ratios.records_per_s.items())
        yield f"beside {verdict.baseline.run}, without faults: longest gap {_times(ratios.longest_gap_s)}; records/s {rates}"
    if verdict.windows is not None and verdict.windows.missed and verdict.outcome == RunOutcome.PASSED:
        missed = verdict.windows.missed
        named = ", ".join(missed[:SHOWN_WINDOWS]) + (
            f" and {len(missed) - SHOWN_WINDOWS} more windows" if len(missed) > SHOWN_WINDOWS else ""
        )
        yield f"not killed in {named}: `streamproof sweep` kills the job of an experiment in each"
    yield from (f"not judged: {what}" for what in verdict.not_judged)
    yield from verdict.notes


def _times(ratio: float | None) -> str:
    return "not known" if ratio is None else f"{ratio:.2f} times"


class _Elapsed(logging.Formatter):
    """Lines that begin with the seconds since the command began."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = time.time()

    def format(self, record: logging.LogRecord) -> str:
        text = f"{record.created - self._begun:6.1f} s  {record.getMessage()}"
        return text if record.exc_info is None else f"{text}\n{self.formatException(record.exc_info)}"


@contextlib.contextmanager
def _progress(experiment: Experiment) -> Iterator[None]:
    """What the run does: plain lines, and on a terminal a live bar below them."""
    from rich.logging import RichHandler
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    logger = logging.getLogger("streamproof")
    logger.setLevel(logging.INFO)
    if not out.is_terminal:
        handler = logging.StreamHandler(out.file)
        handler.setFormatter(_Elapsed())
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} committed"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out, transient=True) as bars:
        live = RichHandler(console=bars.console, show_path=False, show_level=False, markup=False, rich_tracebacks=False)
        logger.addHandler(live)
        bar = bars.add_task("prepare", total=experiment.workload.records)
        done = threading.Event()
        follower = threading.Thread(target=_follow, args=(bars, bar, done, time.time()), daemon=True)
        follower.start()
        try:
            yield
        finally:
            done.set()
            follower.join(timeout=2)
            logger.removeHandler(live)


def _follow(bars: Any, bar: Any, done: threading.Event, since: float) -> None:
    """Feed the bar from the run's folder, the newest one."""
    from streamproof.evidence.progress import Progress

    folder, progress = None, None
    while not done.wait(0.2):
        if folder is None:
            paths = [path for path in settings.runs().glob("*/journal.jsonl") if path.stat().st_mtime >= since]
            if not paths:
                continue
            folder = RunFolder(max(paths, key=lambda path: path.stat().st_mtime).parent)
            progress = Progress(folder)
        now = folder.journal.last(PhaseBegan, StageStarted)
        description = now.phase if isinstance(now, PhaseBegan) else now.stage if isinstance(now, StageStarted) else ""
        assert progress is not None
        bars.update(bar, completed=progress.committed(), description=description)


def main() -> None:
    """Entry point. What the user can mend is one line on standard error, without a traceback."""
    from streamproof.run.lock import TestbedBusy

    try:
        app()
    except (BadInput, EvidenceError, TestbedBusy) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except (TestbedError, SetupError, HistoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(3)
    except ModuleNotFoundError as error:  # a part that this installation left out
        if (missing := extras.named(error)) is None:
            raise
        print(f"error: {missing}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except BrokenPipeError:
        sys.exit(0)


__all__ = ["Schedule", "app", "main"]

if __name__ == "__main__":
    main()
