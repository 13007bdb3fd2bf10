"""``streamproof doctor``: does a job run here at all, and is everything seen that a verdict needs?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from streamproof.cli.terminal import JsonOption, lines_on_stderr, say
from streamproof.experiment.model import Experiment
from streamproof.experiment.reading import load_as_mapping, parse
from streamproof.testbed import embedded

NOT_WELL = 1


def doctor(
    file: Annotated[Path, typer.Argument(help="A job, or an experiment with one, as YAML.")],
    timeout_s: Annotated[int, typer.Option("--timeout", metavar="SECONDS", help="How long it may take.", min=30, max=3600)] = 60,
    as_json: JsonOption = False,
) -> None:
    """Start a job once, without faults, on 1,000 records at most, and say what was seen and what to mend. Nothing of it stays.

    Exit code 1 when something is missing.
    """
    from streamproof.run import doctor as examining

    experiment = examining.experiment_for(experiment_of(file), timeout_s)
    with lines_on_stderr(as_json):
        embedded.up(lambda line: say(line))
        say(f"starting {experiment.label} on {experiment.workload.records} records, without faults; this takes {timeout_s} s at most")
        findings = examining.examine(experiment)
    well = all(finding.well for finding in findings)
    if as_json:
        print(json.dumps({"well": well, "findings": [asdict(finding) for finding in findings]}, indent=1))
    else:
        for finding in findings:
            mark = ("ok     ", "green") if finding.well else ("MISSING", "red")
            say(Text.assemble(mark, f"  {finding.about:12}  {finding.seen}"))
            if finding.mend:
                say(f"{'':23}{finding.mend}")
        say(f"this job can be tested: streamproof run {file}" if well else "mend what is MISSING, and ask again")
    raise typer.Exit(0 if well else NOT_WELL)


def experiment_of(file: Path) -> Experiment:
    """The experiment of the file, or one around the job that the file describes. Raises BadInput."""
    data: dict[str, Any] = load_as_mapping(file, "a job, or an experiment with one")
    return parse({"job": data, "seed": 1} if "engine" in data else data, str(file), Experiment)
