"""What the commands that run something have in common."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.text import Text

from streamproof.cli.attended import attend
from streamproof.cli.terminal import COLOURS, lines_on_stderr, say
from streamproof.verdict.decide import RunOutcome

if TYPE_CHECKING:
    from streamproof.jobs.windows import Window
    from streamproof.run.explore import Exploration
    from streamproof.run.window_sweep import Sweep

WaitOption = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for the testbed while another run holds it.", min=0)
]
EXIT_CODES = {
    RunOutcome.PASSED: 0,
    RunOutcome.FAILED: 1,
    RunOutcome.INCONCLUSIVE: 3,
    RunOutcome.ERROR: 3,
    RunOutcome.ABORTED: 130,
}


@contextlib.contextmanager
def prepared(wait_s: float, attended: bool, as_json: bool) -> Iterator[None]:
    """What a command does around its runs: its lines go where they belong, it ends with the program that started it, it takes its turn."""
    from streamproof.run import lock

    if attended:
        attend()
    with lines_on_stderr(as_json), lock.turn("", wait_s, say) if wait_s else contextlib.nullcontext():
        yield


def say_windows(known: Sequence[Window], begun: float) -> None:
    """The windows of a job, a line each: their names may hold commas. ``begun`` is when the command did, by ``time.monotonic``."""
    say(f"{time.monotonic() - begun:6.0f} s  {len(known)} windows{':' if known else ''}")
    for window in known:
        say(f"          {window.name}")


def end(done: Sweep | Exploration, table: Path, as_json: bool) -> NoReturn:
    """Say what was found and in which file its ``table`` is, and leave with its exit code."""
    if as_json:
        print(json.dumps({"folder": str(table.parent), **done.to_dict()}, indent=1))
    else:
        say(Text.assemble((str(done.outcome), COLOURS.get(done.outcome, "")), f": {done.reason}"))
        say(f"{table}")
    raise typer.Exit(EXIT_CODES[done.outcome])


def only_warnings() -> None:
    """Of what runs log, where a command says a line for each run itself and judges them in this process."""
    logging.getLogger("streamproof").setLevel(logging.WARNING)
    atexit.register(_end_quietly)


def _end_quietly() -> None:
    """DuckDB, once Great Expectations has used it, tells of forty leaked objects as Python ends: of no use to anybody."""
    if "duckdb" in sys.modules:
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
