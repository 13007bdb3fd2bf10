"""In which windows of its commit protocol a job was killed: ``trace/windows.json``, of a run whose messages were read.

``known`` are the windows that the job passed again and again (``streamproof.jobs.windows`` says what a window is). ``hit`` has the window
in which each injection killed it, by what was seen and not by what was meant. ``passed`` says of each of the known what it lies between,
how often it was seen, how long it was open, and what a crash there leaves. ``situations`` says in which situation the job was when each
injection struck, whatever it did.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from streamproof.evidence.folder import EvidenceError, RunFolder, write_atomically
from streamproof.evidence.journal import fault_of


class Stage(StrEnum):
    """How far a start of the job has come: ``start`` before the job has committed anything at all, ``recovery`` before this start has,
    ``work`` from then on."""

    START = "start"
    RECOVERY = "recovery"
    WORK = "work"


@dataclass(frozen=True)
class Situation:
    """What the job was at when a fault struck: the last step that was done, what was on its way to a server then, and the start's stage.

    ``after`` is empty where nothing was done yet. ``in_flight`` are kinds of messages, sorted. ``window`` is None where the next step may
    have been one of several.
    """

    injection: str
    after: str
    stage: Stage
    in_flight: tuple[str, ...] = ()
    window: str | None = None

    @property
    def fault(self) -> str:
        return fault_of(self.injection)

    @property
    def told(self) -> str:
        """Where it was, in words."""
        done = f"after {self.after}" if self.after else "before anything was done"
        flight = f", with {', '.join(self.in_flight)} on its way" if self.in_flight else ""
        stage = {Stage.START: ", as the job began", Stage.RECOVERY: ", in recovery", Stage.WORK: ""}[self.stage]
        return f"{done}{flight}{stage}"


@dataclass(frozen=True)
class Coverage:
    """Names of windows; ``hit`` by injection. ``situations`` are in the order of the injections, and of the strikes of each."""

    known: tuple[str, ...]
    hit: dict[str, str]
    passed: tuple[dict[str, Any], ...] = ()
    situations: tuple[Situation, ...] = ()

    @property
    def struck(self) -> dict[str, tuple[str, ...]]:
        """By window the faults that struck there, each once."""
        found: dict[str, dict[str, None]] = {}
        for situation in self.situations:
            if situation.window is not None:
                found.setdefault(situation.window, {})[situation.fault] = None
        return {window: tuple(faults) for window, faults in found.items()}

    def write(self, folder: RunFolder) -> None:
        write_atomically(folder.windows, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, folder: RunFolder) -> Self | None:
        """None for a run whose messages were not read. Raises EvidenceError when the file is damaged."""
        if not folder.windows.exists():
            return None
        stored = folder.read_json(folder.windows)
        try:
            hit = {str(name): str(window) for name, window in stored["hit"].items()}
            passed = tuple(dict(each) for each in stored.get("passed", ()))
            return cls(tuple(map(str, stored["known"])), hit, passed, tuple(map(_situation, stored.get("situations", ()))))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EvidenceError(f"{folder.windows} is damaged: {type(error).__name__}: {error}") from error


def _situation(stored: dict[str, Any]) -> Situation:
    window = stored["window"]
    return Situation(
        str(stored["injection"]),
        str(stored["after"]),
        Stage(stored["stage"]),
        tuple(map(str, stored["in_flight"])),
        None if window is None else str(window),
    )
