"""``streamproof soak``: each strategy under many random schedules."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import ValidationError

from streamproof.cli.running import EXIT_CODES, only_warnings
from streamproof.cli.terminal import say
from streamproof.errors import BadInput
from streamproof.experiment.reading import explain
from streamproof.testbed import embedded
from streamproof.verdict.decide import RunOutcome


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
