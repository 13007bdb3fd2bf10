"""The run's folder: where each piece of a run's evidence lies, and its append-only journal.

A run *is* its folder. Every step reads what earlier steps wrote there and writes its own part; nothing that a verdict needs lives
in a process's memory. Whole-file artefacts are replaced atomically, the journal is appended to line by line, so that a reader (or a
step that is repeated after a crash) never sees half of one.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
_CANCELLED = b"\x18\n"  # ends a line that its writer could not finish; JSON holds no control character as it is


class EvidenceError(Exception):
    """Evidence that should be in a run's folder is missing or cannot be read. The message names the file."""


def utc_now() -> str:
    """The time as an ISO 8601 stamp in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace ``path`` with ``text``: readers see the old content or the new, also when the machine stops in between.

    With ``mode`` 0o600 it is at no moment readable by anybody but its owner.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


class Journal:
    """The run's timeline, ``journal.jsonl``: one JSON object a line with at least ``at`` (UTC, ISO 8601) and ``event``.

    Several processes append to it side by side; a line is one ``write`` to a descriptor in append mode.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: str, **fields: Any) -> None:
        """Append an event and force it to disk: what is journaled before a fault must survive the fault."""
        append_json_line(self.path, {"at": utc_now(), "event": event, **fields}, durable=True)

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Return the events so far, oldest first; only those with one of ``names`` when any is given."""
        return [line for line in read_json_lines(self.path) if not names or line.get("event") in names]

    def last(self, *names: str) -> dict[str, Any] | None:
        found = self.events(*names)
        return found[-1] if found else None


def append_json_line(path: Path, fields: dict[str, Any], *, durable: bool = False) -> None:
    """Append an object as one line, in one ``write``; with ``durable`` it is on the disk when this returns.

    A rest that a killed writer left without its end is cancelled first, so that it does not swallow this line.
    """
    line = (json.dumps(fields, separators=(",", ":"), default=str) + "\n").encode()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        # Another's line may be half written at this moment: it is whole before this one is written, and then nothing is cancelled.
        whole = _CANCELLED + line if torn else line
        if os.write(descriptor, whole) != len(whole):
            raise OSError(f"{path}: a line could be written in part only; is the disk full?")
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON-lines file.

    A last line without its end (its writer was killed, or is writing) is left out, and so is one that was cancelled later. Raises
    EvidenceError naming the file when a line is something else than an object.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            if line.endswith(_CANCELLED):
                continue
            try:
                found = json.loads(line)
            except ValueError as error:
                raise EvidenceError(f"{path}: a line is not JSON ({error})") from error
            if not isinstance(found, dict):
                raise EvidenceError(f"{path}: a line is not JSON of an object, but of {type(found).__name__}")
            yield found


class RunFolder:
    """Paths of one run's evidence. Opening a folder touches nothing; :meth:`create` makes it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).resolve()
        self.journal = Journal(self.path / "journal.jsonl")

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        folder = cls(path)
        for directory in (folder.sent, folder.delivered, folder.expectations, folder.logs, folder.failpoints):
            directory.mkdir(parents=True, exist_ok=True)
        return folder

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """Open an existing run. Raises EvidenceError when ``path`` is not a run's folder."""
        folder = cls(path)
        if not folder.experiment.is_file():
            raise EvidenceError(
                f"{folder.path} is not a run's folder: it has no experiment.yaml. Name a folder that `streamproof run` wrote."
            )
        return folder

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def experiment(self) -> Path:
        return self.path / "experiment.yaml"

    @property
    def schedule(self) -> Path:
        return self.path / "schedule.json"

    @property
    def sent(self) -> Path:
        return self.path / "sent"

    @property
    def intents(self) -> Path:
        return self.path / "sent" / "intents.jsonl"

    @property
    def delivered(self) -> Path:
        return self.path / "delivered"

    @property
    def drain(self) -> Path:
        return self.path / "delivered" / "drain.json"

    @property
    def progress(self) -> Path:
        return self.path / "progress.jsonl"

    @property
    def batches(self) -> Path:
        return self.path / "batches.jsonl"

    @property
    def events(self) -> Path:
        return self.path / "events.parquet"

    @property
    def source(self) -> Path:
        return self.path / "source.json"

    @property
    def payloads(self) -> Path:
        return self.path / "payloads"

    @property
    def reconciliation(self) -> Path:
        return self.path / "reconciliation.parquet"

    @property
    def verdict(self) -> Path:
        return self.path / "verdict.json"

    @property
    def baseline(self) -> Path:
        return self.path / "baseline.json"

    @property
    def expectations(self) -> Path:
        return self.path / "expectations"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def failpoints(self) -> Path:
        return self.path / "failpoints"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    def read_json(self, path: Path) -> Any:
        """Parse one of the folder's JSON files. Raises EvidenceError naming the file when it is missing or damaged."""
        try:
            return json.loads(path.read_text())
        except FileNotFoundError as error:
            raise EvidenceError(f"{path} is missing: the step that writes it has not finished") from error
        except ValueError as error:
            raise EvidenceError(f"{path} is not JSON: {error}") from error
