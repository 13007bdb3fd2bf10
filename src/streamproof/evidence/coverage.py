"""In which windows of its commit protocol a job was killed: ``trace/windows.json``, of a run whose messages were read.

``known`` are the windows that the job passed again and again (``streamproof.jobs.windows`` says what a window is). ``hit`` has the window
in which each injection killed it, by what was seen and not by what was meant.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Self

from streamproof.evidence.folder import EvidenceError, RunFolder, write_atomically


@dataclass(frozen=True)
class Coverage:
    """Names of windows; ``hit`` by injection."""

    known: tuple[str, ...]
    hit: dict[str, str]

    def write(self, folder: RunFolder) -> None:
        write_atomically(folder.windows, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, folder: RunFolder) -> Self | None:
        """None for a run whose messages were not read. Raises EvidenceError when the file is damaged."""
        if not folder.windows.exists():
            return None
        stored = folder.read_json(folder.windows)
        try:
            return cls(tuple(map(str, stored["known"])), {str(name): str(window) for name, window in stored["hit"].items()})
        except (KeyError, TypeError, AttributeError) as error:
            raise EvidenceError(f"{folder.windows} is damaged: {type(error).__name__}: {error}") from error
