"""``streamproof run FILE``: run an experiment, and say what was delivered."""

from __future__ import annotations

from typing import Annotated

import typer

from streamproof.cli.arguments import FileArgument, SeedOption, SparkOption, experiment_in
from streamproof.cli.attended import AttendedOption
from streamproof.cli.outcome import end_run
from streamproof.cli.progress import progress
from streamproof.cli.running import WaitOption, prepared
from streamproof.cli.terminal import JsonOption, say
from streamproof.evidence.folder import RunFolder
from streamproof.experiment.model import Experiment
from streamproof.verdict.verdict import Verdict


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

    experiment = experiment_in(file, seed)
    if spark is not None:
        counted = experiment.profile.expected is not None
        spark_check.preflight(spark, stateful=experiment.of_results, counted=counted)
    with prepared(wait_s, attended, as_json):
        say(f"seed {experiment.seed}")
        beside = _baseline(experiment, as_json) if baseline else None
        with progress(experiment):
            folder = runner.run(experiment, baseline=beside, spark=spark)
    end_run(folder, as_json)


def _baseline(experiment: Experiment, as_json: bool) -> RunFolder:
    """The same run without faults: one that was run before, or run now. Leaves with its exit code when it does not pass."""
    from streamproof.run import baseline, runner

    unfaulted = baseline.without_faults(experiment)
    folder = baseline.find(unfaulted)
    if folder is not None:
        say(f"baseline: {folder.name}, which passed before")
        return folder
    say("baseline: the same run without faults")
    with progress(unfaulted):
        folder = runner.run(unfaulted)
    verdict = Verdict.read(folder)
    if not verdict.as_expected:
        say("the run without faults did not pass, so there is nothing to compare with; no fault was injected", style="yellow")
        end_run(folder, as_json)
    say(f"baseline: {folder.name} PASSED")
    return folder
