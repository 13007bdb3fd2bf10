"""The manifest, ``manifest.json``: the files that a run is judged by, as they were when its output had been drained.

For each file it gives the size in bytes, the rows (of Parquet and of JSON lines), and a BLAKE2b digest. The stage ``drain`` writes it last.
A run is judged only when its files are those of the manifest: none is missing, none was added, none has changed. Files that change later
(the journal, the verdict, the report) are not in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamproof.evidence.folder import SCHEMA_VERSION, EvidenceError, RunFolder, write_atomically

DIGEST_BYTES = 32
AT_ONCE = 2
REQUIRED = ("delivered/drain.json", "source.json")
"""What every drain writes."""
_PATTERNS = (
    "experiment.yaml",
    "schedule.json",
    "suite.json",
    "source.json",
    "progress.jsonl",
    "batches.jsonl",
    "events.parquet",
    "expected.parquet",
    "inputs.parquet",
    "reference.sql",
    "trace/windows.json",
    "sent/intents.jsonl",
    "sent/*.parquet",
    "delivered/*.parquet",
    "delivered/drain.json",
    "delivered_again/*.parquet",
    "delivered_again/ranges.json",
    "payloads/*.parquet",
    "versions/versions.json",
    "versions/*.parquet",
)


@dataclass(frozen=True)
class Entry:
    """One file. ``rows`` is None where it has none."""

    bytes: int
    rows: int | None
    blake2b: str

    def __str__(self) -> str:
        rows = "" if self.rows is None else f"{self.rows} rows in "
        return f"{rows}{self.bytes} bytes, BLAKE2b {self.blake2b[:16]}…"


def write(folder: RunFolder) -> None:
    """Write the manifest of the files that are there. Raises EvidenceError when one cannot be read, or one that every drain writes is
    missing."""
    entries = _entries(folder)
    for name in REQUIRED:
        if name not in entries:
            raise EvidenceError(f"{folder.path / name} is missing: the stage drain writes it before the manifest")
    listed = {name: {field: value for field, value in asdict(entry).items() if value is not None} for name, entry in entries.items()}
    write_atomically(folder.manifest, json.dumps({"schema": SCHEMA_VERSION, "files": listed}, indent=1) + "\n")


def verify(folder: RunFolder) -> None:
    """Raises EvidenceError naming the first file that is not as the manifest says, what was expected and what was found."""
    expected = _read(folder)
    found = _entries(folder)
    for name in sorted({*REQUIRED, *expected, *found}):
        before, now = expected.get(name), found.get(name)
        if before is None or before != now:
            raise EvidenceError(f"{folder.path / name} is damaged evidence: manifest.json expects {_said(before)}, found {_said(now)}")


def _said(entry: Entry | None) -> str:
    return "no such file" if entry is None else str(entry)


def _read(folder: RunFolder) -> dict[str, Entry]:
    path = folder.manifest
    if not path.exists():
        raise EvidenceError(
            f"{path} is missing, so nobody can tell whether the evidence is complete: the run ended before its output was drained, or an "
            "older version made it. Run its experiment again: `streamproof run` with the experiment.yaml of this folder"
        )
    try:
        files: dict[str, dict[str, Any]] = folder.read_json(path)["files"]
        return {name: Entry(int(entry["bytes"]), entry.get("rows"), str(entry["blake2b"])) for name, entry in files.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EvidenceError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def _entries(folder: RunFolder) -> dict[str, Entry]:
    """The files that are there."""
    paths = {str(path.relative_to(folder.path)): path for path in _files(folder)}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(paths, pool.map(_entry, paths.values()), strict=True))


def _files(folder: RunFolder) -> Iterator[Path]:
    for pattern in _PATTERNS:
        yield from sorted(path for path in folder.path.glob(pattern) if not path.name.startswith("."))


def _entry(path: Path) -> Entry:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES))
        return Entry(path.stat().st_size, _rows(path), digest.hexdigest())
    except OSError as error:
        raise EvidenceError(f"{path} cannot be read as evidence: {error}") from error


def _rows(path: Path) -> int | None:
    """How many rows a file has; None for a kind without rows, and for a file that is damaged (its digest shows that)."""
    if path.suffix == ".jsonl":
        with path.open("rb") as file:
            return sum(line.endswith(b"\n") for line in file)
    if path.suffix != ".parquet":
        return None
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        return None
