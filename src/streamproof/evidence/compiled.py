"""Loops over every record that was delivered, compiled by numba: tens of ns a record, and outside of the interpreter's lock.

What is compiled is kept beside the file that it comes from, and made anew when *that* file changes: so a compiled function calls none of
another file. It is compiled for one kind of arguments only, when it is imported, so that nothing is compiled in the middle of a run.
Nobody checks the bounds of what it reads: it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

BYTES, INTEGERS = (f"Array({kind}, 1, 'C', readonly=True)" for kind in ("uint8", "int64"))


def compiled(result: str, *arguments: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compiles a function of BYTES and INTEGERS; ``result`` is numba's name of what it returns."""
    compile_: Callable[[Callable[..., Any]], Callable[..., Any]] = njit(f"{result}({', '.join(arguments)})", nogil=True, cache=True)
    return compile_


def part(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks what compiled functions of the same file call."""
    called: Callable[..., Any] = njit(nogil=True, inline="always")(function)
    return called
