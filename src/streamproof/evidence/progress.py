"""How far the job under test has come, read from ``progress.jsonl``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamproof.evidence.folder import RunFolder, read_json_lines
from streamproof.evidence.journal import DriverReady


class Progress:
    """Micro-batches committed so far. The file is read again only when it has grown."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._lines: list[dict[str, Any]] = []
        self._size = 0
        self._resumed: dict[str, int] = {}
        self._journal_size = 0

    def lines(self) -> list[dict[str, Any]]:
        """One object per committed micro-batch, oldest first."""
        path = self._folder.progress
        size = path.stat().st_size if path.exists() else 0
        if size != self._size:
            self._lines, self._size = list(read_json_lines(path)), size
        return self._lines

    def batches(self) -> int:
        return len(self.lines())

    def last_start(self) -> int:
        """The driver start that committed the last micro-batch, 0 when there is none."""
        lines = self.lines()
        return int(lines[-1]["start"]) if lines else 0

    def until(self) -> dict[str, int]:
        """The end offset of each input partition that the job committed.

        A driver that dies between committing a batch and reporting it leaves no line; where the next start resumes says that it did.
        """
        ends = dict(self._resumes_at())
        for line in self.lines():
            for partition, offset in reached(line).items():
                ends[partition] = max(ends.get(partition, 0), offset)
        return ends

    def _resumes_at(self) -> dict[str, int]:
        path = self._folder.path / "journal.jsonl"
        size = path.stat().st_size if path.exists() else 0
        if size != self._journal_size:
            for event in self._folder.journal.all(DriverReady):
                for partition, offset in event.resumes_at.items():
                    self._resumed[partition] = max(self._resumed.get(partition, 0), offset)
            self._journal_size = size
        return self._resumed

    def committed(self) -> int:
        """How many input records the job has passed over."""
        return sum(self.until().values())


def reached(line: Mapping[str, Any]) -> dict[str, int]:
    """Up to where a micro-batch took each partition: what the job committed (``until``), or where it commits nothing that can be read,
    what it had delivered by then (``passed_over``)."""
    return {**(line.get("until") or {}), **line.get("passed_over", {})}
