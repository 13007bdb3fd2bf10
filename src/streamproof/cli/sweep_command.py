"""``streamproof sweep``: crash each strategy at each of its steps, or a job in each of its windows."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from streamproof.cli.attended import AttendedOption
from streamproof.cli.running import EXIT_CODES, WaitOption, only_warnings, prepared
from streamproof.cli.terminal import WIDE, JsonOption, out, say
from streamproof.cli.window_sweep import sweep_job
from streamproof.errors import BadInput
from streamproof.experiment import model
from streamproof.testbed import embedded
from streamproof.verdict.decide import RunOutcome

if TYPE_CHECKING:
    from streamproof.run.sweep import Result


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
