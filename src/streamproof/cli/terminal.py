"""What the commands share: how they print, and options that many of them have."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

WIDE = 180
COLOURS = {"PASSED": "green", "FAILED": "red", "INCONCLUSIVE": "yellow", "ERROR": "magenta", "ABORTED": "blue"}

out = Console(highlight=False)
# A line stays a line, however narrow the terminal or the pipe, and what it says is no markup: styles come as ``Text``.
say = functools.partial(out.print, soft_wrap=True, markup=False, emoji=False)

JsonOption = Annotated[bool, typer.Option("--json", help="For machines.")]


@contextlib.contextmanager
def lines_on_stderr(wanted: bool) -> Iterator[None]:
    """With ``wanted``, lines for a reader go to standard error: standard output is for one JSON document."""
    before, out.stderr = out.stderr, out.stderr or wanted
    try:
        yield
    finally:
        out.stderr = before
