"""``streamproof sweep FILE``: break the job of a file in each of its windows."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer
from rich.text import Text

from streamproof import settings
from streamproof.cli.doctor_command import experiment_of
from streamproof.cli.running import end, only_warnings, say_windows
from streamproof.cli.terminal import COLOURS, say
from streamproof.testbed import embedded
from streamproof.verdict.decide import RunOutcome

if TYPE_CHECKING:
    from streamproof.run.window_sweep import Result


def sweep_job(file: Path, seed: int, keep_going: bool, late: bool, as_json: bool, dry: bool) -> NoReturn:
    """Leaves with the exit code of what was found; ``dry``, once it was said what would be tried."""
    from streamproof.run import window_sweep as sweeping

    experiment = sweeping.experiment_for(experiment_of(file), seed)
    only_warnings()
    begun = time.monotonic()

    def show(result: Result, number: int, total: int) -> None:
        anomalies = ", ".join(f"{count} {name}" for name, count in result.found.items())
        word = Text(result.outcome, style=COLOURS.get(result.outcome, ""))
        what = f"{time.monotonic() - begun:6.0f} s  {number} of {total}  {result.told}: "
        say(Text.assemble(what, word, f" {anomalies or ('' if result.outcome == RunOutcome.PASSED else result.reason)}"))

    embedded.up(lambda line: say(line))
    look = partial(say_windows, begun=begun)
    if dry:
        experiment, seen = sweeping.looked_at(experiment)
        look(seen.windows)
        planned = sweeping.planned(experiment, seen, late)
        for number, run in enumerate(planned, 1):
            say(f"run {number}: {'; '.join(f'{crash.label} at {crash.where}' for crash in run)}")
        say(f"{sum(map(len, planned))} faults in {len(planned)} runs, and more where one misses")
        raise typer.Exit
    done = sweeping.sweep(experiment, look, show, keep_going, late)
    folder = settings.home() / "sweeps" / f"{time.strftime('%Y%m%dT%H%M%S')}-{experiment.name}"
    sweeping.write(folder, done)
    end(done, folder / sweeping.TABLE, as_json)
