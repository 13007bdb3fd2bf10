"""A start that is set aside: it was stopped and is taken for dead, as a cluster manager takes a machine for dead that does not answer.

The supervisor starts another in its place and leaves it alone, until whoever set it aside takes it back. What is set aside is said by a
small file in the run's folder, for the supervisor may be another process.
"""

from __future__ import annotations

import json
from pathlib import Path

from streamproof.evidence.folder import RunFolder, write_atomically


def set_aside(folder: RunFolder, start: int) -> None:
    write_atomically(_file(folder), json.dumps({"start": start}))


def take_back(folder: RunFolder) -> None:
    """May be repeated."""
    _file(folder).unlink(missing_ok=True)


def start_aside(folder: RunFolder) -> int | None:
    """The number of the start that is set aside; None when none is."""
    try:
        return int(json.loads(_file(folder).read_text())["start"])
    except FileNotFoundError:
        return None


def _file(folder: RunFolder) -> Path:
    return folder.path / "aside.json"
