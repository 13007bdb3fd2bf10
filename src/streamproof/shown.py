"""How what came from outside is shown in an error: on one line, and cut short when it is long."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

SHOWN = 80

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = SHOWN


def shown(value: Any) -> str:
    """``value`` as Python would write it, in at most ``SHOWN`` characters, however deep, wide or self-containing it is."""
    try:
        text = _short.repr(value)
    except ValueError:  # Python does not write numbers of thousands of digits
        text = f"a number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    return _cut(text)


def named(part: str | int) -> str:
    """A field's name as it is, or as Python would write it when it would break the line; cut like a value."""
    text = str(part)
    return _cut(text if text.isprintable() else repr(text))


def first(names: Sequence[str], count: int) -> str:
    """Those that are named, and how many more of ``count`` there are; empty when there is none."""
    return ", ".join(names) + (f" and {count - len(names)} more" if count > len(names) else "")


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
