"""The metadata of an Iceberg table, read without a JVM: which snapshot added and removed which files, and on whose behalf.

The catalog names the current metadata file. That names the snapshots; a snapshot names its manifest list, which names its manifests, and
those name the files (Iceberg's specification of tables, versions 1 and 2). A metadata file that the catalog does not name was never
committed. Snapshots may expire: what they brought is still there then, and who brought it is not known any more.

Checked against: Iceberg 1.11 on Spark 4.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import fastavro

from streamproof.evidence.folder import EvidenceError
from streamproof.sinks.lakehouse.history import Files, History, changes
from streamproof.sinks.lakehouse.table import File

QUERY, EPOCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"
COMPACTION = "replace"
EXISTING, ADDED, DELETED = 0, 1, 2  # an entry of a manifest
DATA, DELETES = 0, 1  # a manifest


@dataclass(frozen=True)
class Snapshot:
    """A commit. ``number`` counts the table's commits from 1; ``at_ms`` is when, by its writer's clock, in ms since the epoch. ``query``
    and ``epoch`` are the streaming query and the batch that Spark's own sink wrote it for."""

    number: int
    id: int
    parent: int | None
    at_ms: int
    operation: str
    query: str | None
    epoch: int | None
    manifests: str

    @property
    def told(self) -> str:
        """What it is, in words."""
        epoch = "" if self.epoch is None else f", epoch {self.epoch} of {self.query}"
        return f"snapshot {self.number}, {self.operation}{epoch}"


def snapshots(metadata: Path) -> list[Snapshot]:
    """The current snapshot and those it comes from, the oldest first, as far as they have not expired; none of an empty table. Raises
    EvidenceError."""
    known, current = _known(metadata, _document(metadata))
    line: list[Snapshot] = []
    while current in known:
        line.append(known[current])
        current = line[-1].parent
    return line[::-1]


def _document(metadata: Path) -> dict[str, Any]:
    try:
        document = json.loads(metadata.read_text())
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{metadata} is no metadata of an Iceberg table: {error}") from error
    if not isinstance(document, dict):
        raise EvidenceError(f"{metadata} is no metadata of an Iceberg table: it holds no object")
    return document


def _known(metadata: Path, document: dict[str, Any]) -> tuple[dict[int, Snapshot], int | None]:
    """The snapshots, and which is the current one; None of an empty table."""
    try:
        known = {found.id: found for found in map(_snapshot, document.get("snapshots", []))}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvidenceError(f"{metadata} is no metadata of an Iceberg table: {error}") from error
    current = document.get("current-snapshot-id")
    if current in (None, -1):
        return known, None
    if current not in known:
        raise EvidenceError(f"{metadata} does not have its current snapshot, {current}: the table is damaged")
    return known, int(current)


def documents(metadata: Path) -> list[Path]:
    """The metadata files that the catalog named one after the other, up to this one. Some may not be there any more. Raises
    EvidenceError."""
    found = [metadata]
    while (oldest := found[0]).exists() and (before := _before(oldest)):
        found[:0] = before
    return found


def _before(metadata: Path) -> list[Path]:
    try:
        return [path_of(entry["metadata-file"]) for entry in _document(metadata).get("metadata-log", [])]
    except (KeyError, TypeError, AttributeError) as error:
        raise EvidenceError(f"{metadata} is no metadata of an Iceberg table: {error}") from error


def history(metadata: Path) -> History:
    """Every snapshot that was the current one, in turn: also those that expired, or that the table was rolled back from, as long as their
    own metadata are there. Raises EvidenceError."""
    found, gone, manifests = list[tuple[int, str, Files | None]](), 0, dict[str, Files]()
    before: int | None = None
    for path in documents(metadata):
        if not path.exists():
            gone += 1
            continue
        known, current = _known(path, _document(path))
        if current != before:
            before = current
            if current is not None:
                found.append((known[current].at_ms, known[current].told, _files(known[current], manifests)))
            elif found:
                found.append((int(path.stat().st_mtime * 1000), "an empty table", frozenset()))
    unknown = [told for _, told, files in found if files is None]
    others = f", nor what {len(unknown) - 1} others did" if len(unknown) > 1 else ""
    unread = [f"what {unknown[0]} held is not known any more{others}"] if unknown else []
    if gone:
        unread.append(f"{gone} metadata files of older states are not there any more")
    return History(list(changes(found)), unread)


def _files(snapshot: Snapshot, manifests: dict[str, Files]) -> Files | None:
    """The files of a snapshot; None where its metadata are gone. ``manifests`` are those that were read before."""
    if not path_of(snapshot.manifests).exists():
        return None
    found: set[Path] = set()
    for manifest in _records(snapshot.manifests):
        name = str(manifest["manifest_path"])
        if manifest.get("content", DATA) == DELETES:
            raise EvidenceError(f"{snapshot.told} deletes rows of files ({name}), which is not read")
        if name not in manifests:
            if not path_of(name).exists():
                return None
            entries = (entry for entry in _records(name) if entry["status"] != DELETED)
            manifests[name] = frozenset(path_of(str(entry["data_file"]["file_path"])) for entry in entries)
        found |= manifests[name]
    return frozenset(found)


def _snapshot(found: dict[str, Any]) -> Snapshot:
    summary = found.get("summary", {})
    return Snapshot(
        number=int(found.get("sequence-number", 0)),
        id=int(found["snapshot-id"]),
        parent=found.get("parent-snapshot-id"),
        at_ms=int(found["timestamp-ms"]),
        operation=str(summary.get("operation", "append")),
        query=summary.get(QUERY),
        epoch=int(summary[EPOCH]) if EPOCH in summary else None,
        manifests=str(found["manifest-list"]),
    )


def active(history: Sequence[Snapshot]) -> list[File]:
    """The files of the newest snapshot, in the order of their names. Each manifest is read once. Raises EvidenceError naming what is
    missing, or what is not read."""
    found: dict[str, File] = {}
    for place, snapshot in enumerate(history):
        added, gone = [], []
        for manifest in _records(snapshot.manifests):
            if manifest.get("content", DATA) == DELETES:
                raise EvidenceError(f"{snapshot.told} deletes rows of files ({manifest['manifest_path']}), which is not read")
            if place > 0 and manifest["added_snapshot_id"] != snapshot.id:
                continue  # of a snapshot before
            for entry in _records(manifest["manifest_path"]):
                name = str(entry["data_file"]["file_path"])
                if entry["status"] == DELETED:
                    gone.append(name)
                elif entry["status"] == ADDED and entry["snapshot_id"] in (None, snapshot.id):
                    added.append(name)
                elif place == 0:
                    found[name] = _of_an_expired(name, entry["snapshot_id"])
        oldest = min((found[name].written_ms for name in gone if name in found), default=snapshot.at_ms)
        for name in gone:
            found.pop(name, None)
        written_ms = oldest if snapshot.operation == COMPACTION else snapshot.at_ms
        found |= {name: File(path_of(name), written_ms, snapshot.told) for name in added}
    return [found[name] for name in sorted(found)]


def replaced(snapshot: Snapshot) -> tuple[int, int]:
    """How many files a snapshot took out of the table, and how many it put in. Raises EvidenceError."""
    taken = put = 0
    for manifest in _records(snapshot.manifests):
        for entry in _records(manifest["manifest_path"]) if manifest["added_snapshot_id"] == snapshot.id else ():
            taken += entry["status"] == DELETED
            put += entry["status"] == ADDED
    return taken, put


def _of_an_expired(name: str, snapshot: int | None) -> File:
    path = path_of(name)
    written_ms = int(path.stat().st_mtime * 1000) if path.exists() else 0
    return File(path, written_ms, f"snapshot with the id {snapshot}, which has expired")


def _records(location: str) -> Iterator[dict[str, Any]]:
    path = path_of(location)
    try:
        with path.open("rb") as file:
            for record in fastavro.reader(file):
                assert isinstance(record, dict)
                yield record
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise EvidenceError(f"the table's metadata name {path}, and it cannot be read: {error}") from error


def path_of(location: str) -> Path:
    """The file of a location, which may be a URI."""
    found = urlparse(location)
    return Path(unquote(found.path) if found.scheme else location)
