"""A job that stays down: nobody starts it again before a given moment, as where a cluster has no room for it, or where it is night.

Said by a small file in the run's folder, for the supervisor may be another process than who killed the job.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from pydantic import Field

from streamproof.evidence.folder import RunFolder, write_atomically

LONGEST_S = 300.0
DownS = Field(0.0, ge=0.0, le=LONGEST_S, description="How long it stays down before it is started again, in s")


def keep_down(folder: RunFolder, seconds: float) -> None:
    """Nobody starts the job within so many seconds from now. Nothing is done where that is none."""
    if seconds:
        write_atomically(_file(folder), json.dumps({"until": time.time() + seconds}))


def is_down(folder: RunFolder) -> bool:
    """Whether the job is not to be started now."""
    try:
        return time.time() < float(json.loads(_file(folder).read_text())["until"])
    except FileNotFoundError:
        return False


def lift(folder: RunFolder) -> None:
    """May be repeated."""
    _file(folder).unlink(missing_ok=True)


def _file(folder: RunFolder) -> Path:
    return folder.path / "down.json"
