"""``streamproof explore FILE``: look for what breaks a job, as long as there is time."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from streamproof.cli.attended import AttendedOption
from streamproof.cli.doctor_command import experiment_of
from streamproof.cli.running import WaitOption, end, only_warnings, prepared, say_windows
from streamproof.cli.terminal import COLOURS, JsonOption, say
from streamproof.experiment import model
from streamproof.testbed import embedded
from streamproof.verdict.decide import RunOutcome

if TYPE_CHECKING:
    from streamproof.run.explore import Exploration, Tried
    from streamproof.run.shrink import Try


def explore(
    file: Annotated[Path, typer.Argument(help="A job, or an experiment with one, as YAML.")],
    minutes: Annotated[float, typer.Option(help="How long to try, once the windows of the job are known.", min=0.5, max=1440)] = 15,
    seed: Annotated[int, typer.Option(help="Of every run, and of what is drawn.", min=0, max=model.MAX_SEED)] = 1,
    chance: Annotated[
        bool, typer.Option("--chance", help="Draw the faults at random instead of choosing them: a measure of what choosing gains.")
    ] = False,
    shrink: Annotated[bool, typer.Option(help="Look for the fewest faults that it takes, where runs failed.")] = True,
    wait_s: WaitOption = 0,
    attended: AttendedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Break a job in ever new situations: another fault, after another step, with other messages on their way, at work or in recovery. What
    fails is run again with ever fewer faults, after the time is over.

    Exit code 1 when a run failed; 3 when a window of the job was never hit.
    """
    from streamproof.run import explore as exploring

    experiment = exploring.experiment_for(experiment_of(file), seed)
    with prepared(wait_s, attended, as_json):
        only_warnings()
        begun = time.monotonic()
        embedded.up(lambda line: say(line))

        def show(tried: Tried, so_far: Exploration) -> None:
            counts = Counter(tried.faults)
            faults = ", ".join(f"{count} {fault}" if count > 1 else fault for fault, count in counts.items())
            word = Text(tried.outcome, style=COLOURS.get(tried.outcome, ""))
            anomalies = ", ".join(f"{count} {name}" for name, count in tried.anomalies.items())
            told = anomalies or ("" if tried.outcome in (RunOutcome.PASSED, RunOutcome.INCONCLUSIVE) else tried.reason)
            news = f", {tried.new} new situations, {len(so_far.seen)} in all"
            say(Text.assemble(f"{time.monotonic() - begun:6.0f} s  {faults}: ", word, f" {told}".rstrip(), news))

        def show_try(attempt: Try) -> None:
            say(f"        {', '.join(attempt.injections) or 'no fault'}: {'fails in the same way' if attempt.fails else attempt.outcome}")

        done, folder = exploring.explore(experiment, minutes, partial(say_windows, begun=begun), show, chance=chance)
        for failed in exploring.failures(done) if shrink and done.outcome is RunOutcome.FAILED else ():
            say(f"{time.monotonic() - begun:6.0f} s  which faults of {failed.run} suffice?")
            say(f"        {exploring.smallest(done, folder, failed, show_try)}")
    end(done, folder / exploring.SITUATIONS, as_json)
