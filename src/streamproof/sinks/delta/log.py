"""The log of a Delta table, read without a JVM: which version added and removed which files, and on whose behalf.

Each version is a file ``_delta_log/N.json`` with an action in each line (Delta's protocol: ``add``, ``remove``, ``txn``, ``commitInfo``).
Delta deletes such files after 30 days; of a table that a run has made all of them are there, and one that is missing is damage.

Checked against: Delta 4.4 on Spark 4.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from streamproof.evidence.folder import EvidenceError

LOG = "_delta_log"


@dataclass(frozen=True)
class Version:
    """A commit. ``at_ms`` is when, by its writer's clock, in ms since the epoch. ``applications`` are the writers that it remembers, each
    with the number of its last transaction; Spark's own sink writes the query's id and the batch."""

    number: int
    at_ms: int
    operation: str
    applications: dict[str, int]
    added: dict[str, int]
    """The files, each with when it was written, in ms since the epoch."""
    removed: tuple[str, ...]
    changes: bool
    """Whether it changes the table's rows; a compaction does not."""

    @property
    def told(self) -> str:
        """What it is, in words."""
        written = ", ".join(f"transaction {number} of {name}" for name, number in self.applications.items())
        return f"version {self.number}, {self.operation}{f', {written}' if written else ''}"


def versions(table: Path) -> list[Version]:
    """All of them, the oldest first; none where there is no table yet. Raises EvidenceError naming what the log lacks."""
    numbers = sorted(int(path.stem) for path in (table / LOG).glob("*.json") if path.stem.isdigit())
    for number, found in enumerate(numbers):
        if found != number:
            raise EvidenceError(f"{table / LOG} has no version {number}, though it has a version {found}: the table is damaged")
    return [_version(table, number) for number in numbers]


def _version(table: Path, number: int) -> Version:
    path = table / LOG / f"{number:020d}.json"
    at_ms, operation, applications, added, removed = 0, "", dict[str, int](), dict[str, int](), list[str]()
    changes = False
    try:
        for kind, action in _actions(path):
            if kind == "commitInfo":
                at_ms, operation = int(action["timestamp"]), str(action["operation"])
            elif kind == "txn":
                applications[action["appId"]] = int(action["version"])
            elif kind == "add":
                changes |= bool(action.get("dataChange", True))
                if action.get("deletionVector"):
                    raise EvidenceError(f"{path}: {action['path']} has a deletion vector, which is not read")
                added[unquote(action["path"])] = int(action["modificationTime"])
            elif kind == "remove":
                removed.append(unquote(action["path"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvidenceError(f"{path} is no version of a Delta table: {error}") from error
    return Version(number, at_ms, operation, applications, added, tuple(removed), changes)


def _actions(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in path.read_text().splitlines():
        if line.strip():
            yield from json.loads(line).items()


@dataclass(frozen=True)
class File:
    """A file of the table. ``written_ms`` is when its rows were written: of a compaction's file, when the oldest of those was that it
    replaces, for its rows were there before."""

    version: Version
    written_ms: int


def active(history: Sequence[Version]) -> dict[str, File]:
    """The files of the newest version, by name in the order of their names."""
    found: dict[str, File] = {}
    for version in history:
        gone = [found.pop(name) for name in version.removed if name in found]
        oldest = min((file.written_ms for file in gone), default=None) if not version.changes else None
        found |= {name: File(version, written_ms if oldest is None else oldest) for name, written_ms in version.added.items()}
    return dict(sorted(found.items()))
