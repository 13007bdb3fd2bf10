"""The commands on the history of runs: ``streamproof history ...``, ``compare`` and ``metrics``."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from streamproof.cli.terminal import COLOURS, WIDE, JsonOption, out, say
from streamproof.errors import BadInput
from streamproof.evidence.folder import write_atomically
from streamproof.shown import shown
from streamproof.verdict.decide import RunOutcome

if TYPE_CHECKING:
    from streamproof.history.record import Run
    from streamproof.history.store import Store, Wanted

SHOWN_RUNS = 20
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
LONGEST = timedelta(weeks=5000)
KIND_COLOURS = {
    "newly broken": "red",
    "still broken": "red",
    "flaky": "magenta",
    "not shown": "yellow",
    "slower": "yellow",
    "fixed": "green",
}

history_app = typer.Typer(help="The runs so far.", no_args_is_help=False)

StrategyOption = Annotated[str | None, typer.Option(help="Only runs with this strategy.")]
FaultOption = Annotated[str | None, typer.Option(help="Only runs in which this fault was injected, perhaps with others.")]
OutcomeOption = Annotated[str | None, typer.Option(help="Only runs with this outcome.")]
SinceOption = Annotated[str | None, typer.Option(help="Only runs that began since: a date as 2026-11-21, or a time ago as 7d, 12h.")]
LatelyOption = Annotated[str | None, typer.Option("--since", help="Only cells that were run since: a date, or a time ago as 7d, 12h.")]
FileArgument = Annotated[Path, typer.Argument(help="The file to write.")]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="The history's database; STREAMPROOF_HISTORY, or history.sqlite in the state folder, when absent."),
]


@history_app.callback(invoke_without_command=True)
def history(
    context: typer.Context,
    strategy: StrategyOption = None,
    fault: FaultOption = None,
    outcome: OutcomeOption = None,
    since: SinceOption = None,
    limit: Annotated[int, typer.Option(help="How many runs.", min=1)] = SHOWN_RUNS,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the last runs."""
    if context.invoked_subcommand is not None:
        if (strategy, fault, outcome, since, limit, store, as_json) != (None, None, None, None, SHOWN_RUNS, None, False):
            raise BadInput(
                f"history: write the options behind the command, as in `streamproof history {context.invoked_subcommand} --help`"
            )
        return
    from streamproof.run import recording as remembered

    with remembered.opened(store) as opened:
        query = _wanted(opened, strategy, fault, outcome, since)
        runs = opened.runs(replace(query, limit=limit))
    if as_json:
        print(json.dumps([asdict(run) for run in runs], indent=1, default=_json))
    elif runs:
        _print(_listed(runs))
    else:
        say(f"no such run in {opened.name}; `streamproof history import` takes in runs that exist")


@history_app.command("import")
def take_in(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Runs, or folders that hold runs; all of the state folder when absent.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Take runs into the history that were made before, or elsewhere."""
    from streamproof.run import recording as remembered

    paths = remembered.run_folders(folders or [])
    with remembered.opened(store) as opened:
        runs, refused = remembered.take_in(opened, paths)
    for reason in refused:
        say(f"left out: {reason}", style="yellow")
    say(f"{len(runs)} of {len(paths)} runs taken into {opened.name}")


@history_app.command()
def prune(
    older_than: Annotated[str | None, typer.Option(help="Runs that began longer ago, as 30d.")] = None,
    keep: Annotated[int | None, typer.Option(help="But never the newest so many of a cell (a strategy and its faults).", min=1)] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    store: StoreOption = None,
) -> None:
    """Remove old runs: their rows, and their folders where these are in the state folder. Never a run that is at work."""
    from streamproof.run import recording as remembered

    if older_than is None and keep is None:
        raise BadInput("prune: expected --older-than or --keep (or both: runs that fit both go), came neither")
    age = _ago("--older-than", older_than) if older_than is not None else None
    word = "would remove" if dry else "removed"
    rows = folders = 0
    with remembered.opened(store) as opened:
        for removal in remembered.remove(opened, remembered.old(opened.runs(), age, keep), dry=dry):
            rows, folders = rows + removal.row, folders + removal.folder
            removed = " and ".join(name for name, goes in (("row", removal.row), ("folder", removal.folder)) if goes)
            line = f"{word} {removed} of {removal.run.run}" if removed else f"kept {removal.run.run}"
            say(line if removal.kept is None else f"{line}: {removal.kept}")
    say(f"{word} {rows} rows and {folders} folders")


@history_app.command()
def changes(
    strategy: StrategyOption = None,
    fault: FaultOption = None,
    since: LatelyOption = None,
    every: Annotated[bool, typer.Option("--all", help="Stable cells too.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what the newest run of each cell (a strategy and its faults) changed: newly broken, fixed, flaky, slower.

    Exit code 1 when something is broken, flaky, slower, or not shown.
    """
    from streamproof.history import changes as changing
    from streamproof.run import recording as remembered

    with remembered.opened(store) as opened:
        runs = _lately(opened, strategy, fault, since)
    found_changes = changing.changes(runs)
    if as_json:
        print(json.dumps([asdict(change) for change in found_changes], indent=1, default=_json))
    else:
        table = Table("change", "strategy", Column("faults", overflow="fold"), Column("run", overflow="fold"), Column("", overflow="fold"))
        reported = [change for change in found_changes if every or change.kind is not changing.Kind.STABLE]
        for change in reported:
            kind = Text(change.kind, KIND_COLOURS.get(change.kind, ""))
            table.add_row(kind, *map(Text, (change.cell.strategy, change.cell.faults, change.newest.run, change.reason)))
        if reported:
            _print(table)
        say(
            ", ".join(f"{count} {kind}" for kind in changing.Kind if (count := sum(change.kind is kind for change in found_changes)))
            or "no run"
        )
    if any(change.kind in changing.ALARMING for change in found_changes):
        raise typer.Exit(1)


@history_app.command()
def html(
    file: FileArgument,
    strategy: StrategyOption = None,
    fault: FaultOption = None,
    since: LatelyOption = None,
    store: StoreOption = None,
) -> None:
    """Write a page with strategies by faults: how each stands, since when, and how long recovery takes."""
    from streamproof import settings
    from streamproof.history import page
    from streamproof.run import recording as remembered

    with remembered.opened(store) as opened:
        runs = _lately(opened, strategy, fault, since)
    with _written(file):
        say(f"{page.write(runs, file, settings.cache())}")


@history_app.command()
def junit(
    file: FileArgument,
    strategy: StrategyOption = None,
    fault: FaultOption = None,
    outcome: OutcomeOption = None,
    since: SinceOption = None,
    store: StoreOption = None,
) -> None:
    """Write runs as JUnit XML, for a CI server: FAILED is a failure; what shows nothing is an error."""
    from streamproof.history import junit as history_junit
    from streamproof.run import recording as remembered

    with remembered.opened(store) as opened:
        runs = opened.runs(_wanted(opened, strategy, fault, outcome, since))
    with _written(file):
        write_atomically(file, history_junit.junit(runs))
    say(f"{len(runs)} runs: {file}")


def metrics(
    file: Annotated[Path | None, typer.Argument(help="Written there, as a whole; on standard output when absent.")] = None,
    since: LatelyOption = None,
    store: StoreOption = None,
) -> None:
    """The newest run of each cell (a strategy and its faults) as metrics, in OpenMetrics' text form for Prometheus."""
    from streamproof.history import metrics as history_metrics
    from streamproof.run import recording as remembered

    with remembered.opened(store) as opened:
        text = history_metrics.metrics(_lately(opened, None, None, since))
    if file is None:
        print(text, end="")
        return
    with _written(file):
        write_atomically(file, text)


def compare(
    first: Annotated[str, typer.Argument(help="A run: its folder, or its name.")],
    second: Annotated[str, typer.Argument(help="Another one.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what differs between two runs, and whether they can be compared at all."""
    from streamproof.history import compare as comparing
    from streamproof.run import recording as remembered

    with remembered.opened(store) as opened:
        comparison = comparing.compare(remembered.find_run(opened, first), remembered.find_run(opened, second))
    if as_json:
        differences = [{**asdict(difference), "ratio": difference.ratio} for difference in comparison.differences]
        document = {"comparable": comparison.comparable, "obstacles": comparison.obstacles, "differences": differences}
        print(json.dumps({"first": asdict(comparison.first), "second": asdict(comparison.second), **document}, indent=1, default=_json))
        return
    table = Table(
        "",
        "",
        Column(comparison.first.run, overflow="fold"),
        Column(comparison.second.run, overflow="fold"),
        Column("times", justify="right"),
    )
    group = None
    for difference in comparison.differences:
        table.add_row(
            *map(
                Text,
                (
                    "" if difference.group == group else difference.group,
                    difference.name,
                    _value(difference.first),
                    _value(difference.second),
                ),
            ),
            _times(difference.ratio),
        )
        group = difference.group
    if comparison.differences:
        _print(table)
    else:
        say("nothing differs")
    if comparison.comparable:
        say("the same experiment: comparable")
    else:
        say(f"NOT comparable, this is {', '.join(comparison.obstacles)}: what differs above need not come from the job", style="yellow")


def _lately(store: Store, strategy: str | None, fault: str | None, since: str | None) -> list[Run]:
    """The runs of cells that were run since: what is older is what the newest are held against."""
    from streamproof.history.record import lately

    runs = store.runs(_wanted(store, strategy, fault, None, None))
    return lately(runs, _since(since) if since is not None else None)


@contextlib.contextmanager
def _written(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error}") from error


def _wanted(store: Store, strategy: str | None, fault: str | None, outcome: str | None, since: str | None) -> Wanted:
    """What the options ask for. Raises BadInput for a name that no run has, and says which there are."""
    from streamproof.history.store import Wanted

    strategies, faults = store.names() if strategy is not None or fault is not None else (set(), set())
    for option, name, names in (("--strategy", strategy, strategies), ("--fault", fault, faults)):
        if name is not None and name not in names:
            raise BadInput(f"{option}: no run in the history has {shown(name)}; there are: {', '.join(sorted(names)) or 'none'}")
    if outcome is not None and outcome.upper() not in list(RunOutcome):
        raise BadInput(f"--outcome: expected one of {', '.join(RunOutcome)}, came {shown(outcome)}")
    begun = _since(since) if since is not None else None
    return Wanted(strategy, fault, RunOutcome(outcome.upper()) if outcome is not None else None, begun)


def _since(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()  # without a zone it is the reader's
    except (ValueError, OverflowError):
        return datetime.now(UTC) - _ago("--since", text, "a date as 2026-11-21 or ")


def _ago(option: str, text: str, alternatives: str = "") -> timedelta:
    match = re.fullmatch(r"(\d{1,5})([mhdw])", text)
    age = timedelta(**{UNITS[match[2]]: int(match[1])}) if match is not None else None
    if age is None or age > LONGEST:
        raise BadInput(f"{option}: expected {alternatives}a time as 30d, 12h, 45m or 2w, came {shown(text)}")
    return age


def _listed(runs: Sequence[Run]) -> Table:
    table = Table(
        Column("run", overflow="fold"), "began", "outcome", "strategy", Column("faults", overflow="fold"), "seed", "lost", "doubled",
        "recovery", "took",
    )  # fmt: skip
    for run in runs:
        began = run.began_at.astimezone().strftime("%Y-%m-%d %H:%M")
        outcome = Text(run.outcome, COLOURS[run.outcome])
        cells = (run.strategy, run.faults, str(run.seed), *_counts(run), _seconds(run.recovery_s), _seconds(run.duration_s))
        table.add_row(Text(run.run), began, outcome, *map(Text, cells))
    return table


def _counts(run: Run) -> Iterator[str]:
    for anomaly in ("LOST", "DUPLICATED"):
        yield str(run.anomalies.get(anomaly, "-"))


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _value(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _print(table: Table) -> None:
    if not out.is_terminal:
        out.width = max(out.width, WIDE)
    out.print(table)
