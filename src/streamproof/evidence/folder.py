"""The run's folder: where each piece of a run's evidence lies.

A run *is* its folder. Every stage reads what earlier stages wrote there and writes its own part; nothing that a verdict needs lives
in a process's memory.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streamproof.evidence.files import SCHEMA_VERSION, EvidenceError, append_json_line, read_json_lines, utc_now, write_atomically
from streamproof.evidence.journal import Journal


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
    def expected(self) -> Path:
        return self.path / "expected.parquet"

    @property
    def windows(self) -> Path:
        return self.path / "trace" / "windows.json"

    @property
    def inputs(self) -> Path:
        return self.path / "inputs.parquet"

    @property
    def reference(self) -> Path:
        return self.path / "reference.sql"

    @property
    def source(self) -> Path:
        return self.path / "source.json"

    @property
    def delivered_again(self) -> Path:
        return self.path / "delivered_again"

    @property
    def versions(self) -> Path:
        return self.path / "versions"

    @property
    def known_versions(self) -> Path:
        return self.path / "versions" / "versions.json"

    @property
    def kept(self) -> Path:
        """Files of the output that somebody deleted during the run, and older versions of it showed. They go with the output."""
        return self.path / "kept"

    @property
    def payloads(self) -> Path:
        return self.path / "payloads"

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.json"

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
    def messages(self) -> Path:
        """The trace of what went between the job and its servers, of a run that asked for it."""
        return self.path / "trace" / "messages.jsonl"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    def read_json(self, path: Path) -> Any:
        """Parse one of the folder's JSON files. Raises EvidenceError naming the file when it is missing or damaged."""
        try:
            return json.loads(path.read_text())
        except FileNotFoundError as error:
            raise EvidenceError(f"{path} is missing: the stage that writes it has not finished") from error
        except ValueError as error:
            raise EvidenceError(f"{path} is not JSON: {error}") from error


__all__ = [
    "SCHEMA_VERSION",
    "EvidenceError",
    "Journal",
    "RunFolder",
    "append_json_line",
    "read_json_lines",
    "utc_now",
    "write_atomically",
]
