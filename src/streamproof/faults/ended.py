"""Which starts of the job ended after a fault, and what their logs say of it."""

from __future__ import annotations

from collections.abc import Collection

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import DriverExited


def ended(folder: RunFolder, since: int) -> list[int]:
    """The starts from this one on that ended, in their order."""
    return sorted({event.start for event in folder.journal.all(DriverExited) if event.start >= since})


def ended_saying(folder: RunFolder, since: int, words: Collection[str]) -> list[int]:
    """Those of them whose log holds one of these."""
    logs = {start: folder.logs / f"driver-{start}.log" for start in ended(folder, since)}
    return [start for start, log in logs.items() if log.exists() and any(each in log.read_text(errors="replace") for each in words)]
