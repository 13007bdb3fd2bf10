"""Which versions of a table showed which record: ``versions/``, of an output that keeps versions (Delta, Iceberg).

Each version is a state that a reader may have seen. Files:
    ``versions/versions.json``  every version, the oldest first: when it was committed, in ms since the epoch, what it is, in words, how
                                many files it added and removed, how many rows it showed, and whether all files that it showed could be
                                read; and what is not known of them
    ``versions/*.parquet``      producer?, sequence?, since, until?: a row of one of the table's files, from the first version that showed
                                it until the first that did not; null where the newest one does. Versions are counted from 0 here.

A table from which no version took a file away has no rows here: each version shows what the ones before it showed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamproof.evidence.columns import array, flags, integers
from streamproof.evidence.folder import EvidenceError, RunFolder, write_atomically
from streamproof.evidence.histories import files

STILL = np.int64(1) << 31
"""Where ``until`` is null."""
SHOWN = pa.schema([("producer", pa.int32()), ("sequence", pa.int64()), ("since", pa.int32()), ("until", pa.int32())])
_FAST: dict[str, Any] = {
    "compression": "none",
    "use_dictionary": ["producer", "since", "until"],
    "column_encoding": {"sequence": "DELTA_BINARY_PACKED"},
}
Identities = tuple[pa.Array, pa.Array]
"""Producer and sequence of each row, null where there is no identity that can be read."""
Span = tuple[int, int | None]
"""From which version until before which; None: the newest one has it."""


@dataclass(frozen=True)
class Version:
    """A version of a table: the files that it shows and the one before it did not, and the other way round. ``at_ms`` is when it was
    committed, in ms since the epoch, ``told`` what it is, in words. ``known`` is False where nobody knows any more what it shows."""

    at_ms: int
    told: str
    added: tuple[Path, ...] = ()
    removed: tuple[Path, ...] = ()
    known: bool = True


@dataclass(frozen=True)
class Known:
    """What a run knows of the versions of its output, see :class:`Version`. ``whole`` says whether all files of a version could be read,
    ``records`` how many rows it showed, None where that is not known; ``unread`` has a sentence for each thing that is not known."""

    at_ms: tuple[int, ...]
    told: tuple[str, ...]
    whole: tuple[bool, ...]
    records: tuple[int | None, ...]
    added: tuple[int, ...]
    removed: tuple[int, ...]
    unread: tuple[str, ...]


def write(
    folder: RunFolder,
    versions: Sequence[Version],
    identities: Callable[[Path], Identities | None],
    unread: Sequence[str],
    place: Callable[[Path], Path] = Path,
) -> None:
    """Write what these versions showed, in place of what was written before. ``identities`` reads a file; None: it cannot be read.
    ``place`` says where a file lies, if it has been moved."""
    shutil.rmtree(folder.versions, ignore_errors=True)
    folder.versions.mkdir()
    shown = spans(versions)
    changed = any(each.removed for each in versions)
    missing = _write_rows(folder.versions / "shown.parquet", shown, identities, place) if changed else []
    whole = np.array([each.known for each in versions], bool)
    for since, until in (span for file in missing for span in shown[file]):
        whole[since:until] = False
    counts = _counts(shown, len(versions), place)
    said = [
        {
            "at_ms": each.at_ms,
            "told": each.told,
            "added": len(each.added),
            "removed": len(each.removed),
            "records": count if all_read else None,
            "whole": bool(all_read),
        }
        for each, all_read, count in zip(versions, whole, counts, strict=True)
    ]
    sentences = [*unread, *_about(missing, shown, versions)]
    write_atomically(folder.known_versions, json.dumps({"versions": said, "unread": sentences}, indent=1) + "\n")


def _counts(shown: Mapping[Path, list[Span]], versions: int, place: Callable[[Path], Path]) -> list[int]:
    """How many rows each version showed, as far as its files can be read."""
    change = np.zeros(versions + 1, np.int64)
    for file, when in shown.items():
        try:
            rows = pq.read_metadata(place(file)).num_rows
        except (OSError, pa.ArrowException):
            continue
        for since, until in when:
            change[since] += rows
            change[versions if until is None else until] -= rows
    return list(map(int, np.cumsum(change[:-1])))


def _write_rows(
    path: Path, shown: Mapping[Path, list[Span]], identities: Callable[[Path], Identities | None], place: Callable[[Path], Path]
) -> list[Path]:
    """The files that cannot be read."""
    missing = []
    with pq.ParquetWriter(path, SHOWN, **_FAST) as writer:
        for file, when in shown.items():
            if (found := identities(place(file))) is None:
                missing.append(file)
                continue
            for since, until in when:
                writer.write_table(_rows(found, since, until))
    return missing


def _about(missing: Sequence[Path], shown: Mapping[Path, list[Span]], versions: Sequence[Version]) -> Iterator[str]:
    """A sentence about the files that cannot be read."""
    if missing:
        until = next((end for _, end in shown[missing[0]] if end is not None), len(versions) - 1)
        others = f", nor can {len(missing) - 1} others" if len(missing) > 1 else ""
        yield f"{missing[0].name}, which {versions[until].told} took away, cannot be read any more{others}"


def _rows(found: Identities, since: int, until: int | None) -> pa.Table:
    count = len(found[0])
    ends = pa.nulls(count, pa.int32()) if until is None else array(np.full(count, until, np.int32))
    return pa.table([found[0].cast(pa.int32()), found[1].cast(pa.int64()), array(np.full(count, since, np.int32)), ends], schema=SHOWN)


def spans(versions: Sequence[Version]) -> dict[Path, list[Span]]:
    """When each file was shown, the oldest first."""
    found: dict[Path, list[Span]] = {}
    for number, version in enumerate(versions):
        for file in version.removed:
            if (shown := found.get(file)) and shown[-1][1] is None:
                shown[-1] = shown[-1][0], number
        for file in version.added:
            shown = found.setdefault(file, [])
            if not shown or shown[-1][1] is not None:
                shown.append((number, None))
    return {file: [span for span in shown if span[0] != span[1]] for file, shown in found.items()}


def known(folder: RunFolder) -> Known | None:
    """What is known of the versions; None for an output that has none. Raises EvidenceError."""
    if not folder.known_versions.exists():
        return None
    document = folder.read_json(folder.known_versions)
    try:
        versions = document["versions"]
        return Known(
            tuple(int(each["at_ms"]) for each in versions),
            tuple(str(each["told"]) for each in versions),
            tuple(bool(each["whole"]) for each in versions),
            tuple(None if each["records"] is None else int(each["records"]) for each in versions),
            tuple(int(each["added"]) for each in versions),
            tuple(int(each["removed"]) for each in versions),
            tuple(map(str, document["unread"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EvidenceError(f"{folder.known_versions} is damaged: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Shown:
    """Rows of ``versions/``, columns of equal length. ``until`` is STILL where the newest version shows the row."""

    identified: np.ndarray
    producer: np.ndarray
    sequence: np.ndarray
    since: np.ndarray
    until: np.ndarray


def count(folder: RunFolder) -> int:
    """How many rows there are. Raises EvidenceError."""
    try:
        return sum(pq.read_metadata(path).num_rows for path in files(folder.versions))
    except (OSError, pa.ArrowException) as error:
        raise EvidenceError(f"{folder.versions} cannot be read as evidence: {error}") from error


def rows(folder: RunFolder) -> Iterator[Shown]:
    """What the versions showed, a group of rows at a time. Raises EvidenceError."""
    for path in files(folder.versions):
        try:
            with pq.ParquetFile(path) as file:
                for number in range(file.num_row_groups):
                    yield _shown(path, file.read_row_group(number, columns=SHOWN.names))
        except (OSError, pa.ArrowException, KeyError) as error:
            raise EvidenceError(f"{path} cannot be read as evidence: {error}") from error


def _shown(path: Path, table: pa.Table) -> Shown:
    since, until = integers(table["since"]), integers(table["until"])
    until = np.where(flags(table["until"].is_valid()), until, STILL)
    if (since < 0).any() or (until <= since).any():
        raise EvidenceError(f"{path} holds a row that was gone before it was there")
    identified = flags(table["producer"].is_valid()) & flags(table["sequence"].is_valid())
    return Shown(identified, integers(table["producer"]), integers(table["sequence"]), since, until)
