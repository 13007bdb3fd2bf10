"""``streamproof shrink RUN``: the smallest schedule that makes a run fail as it did."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from streamproof.cli.arguments import RunArgument, run_folder
from streamproof.cli.running import EXIT_CODES, only_warnings
from streamproof.cli.terminal import say
from streamproof.testbed import embedded
from streamproof.verdict.decide import RunOutcome


def shrink(run: RunArgument, dry: Annotated[bool, typer.Option("--dry", help="Only say what would be tried.")] = False) -> None:
    """Look for the smallest schedule that makes a run fail as this one did: run it again with ever fewer of its faults."""
    from streamproof.run import shrink as shrinking

    subject = shrinking.subject(run_folder(run))
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
