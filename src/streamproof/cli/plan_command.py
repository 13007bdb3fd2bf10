"""``streamproof plan FILE``: what would be broken when."""

from __future__ import annotations

from streamproof.cli.arguments import FileArgument, SeedOption, experiment_in
from streamproof.cli.terminal import JsonOption, say
from streamproof.experiment.schedule import Injection
from streamproof.experiment.schedule import plan as make_plan


def plan(file: FileArgument, seed: SeedOption = None, as_json: JsonOption = False) -> None:
    """Say what would be broken when. Touches nothing."""
    experiment = experiment_in(file, seed)
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
