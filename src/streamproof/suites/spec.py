"""The part of a run's spec that the suites need: guarantee, promises, and the computation that a stateful job declares.

It is stored in the run's ``expectations/spec.json``, so that the folder alone is enough to judge the run by the suites.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streamproof.evidence.folder import EvidenceError, RunFolder, write_atomically
from streamproof.verdict import guarantee
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee, Promise


@dataclass(frozen=True)
class SuiteSpec:
    """``asked`` are the anomalies that both judges name, ``expected`` those that must be found; ``computation`` is what a stateful job
    declares (``kind`` and its numbers), None for a job that passes records on. ``location`` is where a delivered record's identity is."""

    guarantee: Guarantee
    promises: tuple[Promise, ...]
    asked: tuple[Anomaly, ...]
    expected: tuple[Anomaly, ...] = ()
    recover_within_s: float | None = None
    computation: dict[str, Any] | None = None
    location: dict[str, Any] | None = None

    @property
    def forbidden(self) -> frozenset[Anomaly]:
        return guarantee.forbidden(self.guarantee, self.promises, self.computation is not None)

    @property
    def suites(self) -> tuple[str, ...]:
        """The names of the suites that hold a run to this."""
        stateful = self.computation is not None
        of_data = [f"{self.guarantee}-results"] if stateful else [str(self.guarantee), *map(str, self.promises)]
        conditions = {"negative-control": bool(self.expected), "recovery": self.recover_within_s is not None}
        return (*of_data, "evidence", *(name for name, applies in conditions.items() if applies))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def write(self, folder: RunFolder) -> None:
        write_atomically(path(folder), json.dumps(self.to_dict(), indent=1) + "\n")


def path(folder: RunFolder) -> Path:
    """Where a run's spec lies."""
    return Path(folder.expectations) / "spec.json"


def read(folder: RunFolder) -> SuiteSpec:
    """The run's spec. Raises EvidenceError when it is missing or damaged."""
    document = folder.read_json(path(folder))
    try:
        return SuiteSpec(
            Guarantee(document["guarantee"]),
            tuple(map(Promise, document["promises"])),
            tuple(map(Anomaly, document["asked"])),
            tuple(map(Anomaly, document["expected"])),
            document["recover_within_s"],
            document["computation"],
            document.get("location"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EvidenceError(f"{path(folder)} is damaged: {type(error).__name__}: {error}") from error
