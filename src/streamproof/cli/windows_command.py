"""``streamproof windows``: between which steps of a job would a crash find another state?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from streamproof.cli.doctor_command import experiment_of
from streamproof.cli.terminal import JsonOption, lines_on_stderr, say
from streamproof.jobs import windows as seen


def windows(
    file: Annotated[Path, typer.Argument(help="A job, or an experiment with one, as YAML.")],
    as_json: JsonOption = False,
) -> None:
    """Run a job once, without faults, and list its windows: between which steps a crash finds another state, as seen from outside.

    A fault is aimed at one of them by `kill_at_window`, with `parameters: {window: "AFTER > BEFORE"}`.
    """
    from streamproof.run import windows as looking

    experiment = looking.experiment_for(experiment_of(file))
    with lines_on_stderr(as_json):
        say(f"running {experiment.label} on {experiment.workload.records} records, without faults")
        found = looking.look(experiment).windows
    if as_json:
        told = [{"window": window.name, **asdict(window), "leaves": seen.leaves(window.name)} for window in found]
        print(json.dumps(told, indent=1))
        return
    table = Table(
        "window",
        "passed",
        "open, median",
        "a crash there leaves",
        title=f"{len(found)} windows of {experiment.label}",
        title_justify="left",
        box=None,
    )
    for window in found:
        table.add_row(window.name, str(window.seen), f"{window.open_ms:.0f} ms", seen.leaves(window.name))
    say(table)
