"""What the generator of the workload is told while it runs: how far it may go, and what it is to do otherwise.

Both are small files in the run's folder, for the generator may be a process of its own.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from streamproof.evidence.folder import RunFolder, write_atomically
from streamproof.evidence.progress import Progress


class Gate:
    """How many records may be sent in all so far: written by the fault injector, read by the generator, in ``gate.json``."""

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.path / "gate.json"
        self._progress = Progress(folder)

    def open_to(self, records: int, ahead: int | None = None) -> None:
        """Let ``records`` be sent; with ``ahead`` never more than that many before the job has committed the rest."""
        write_atomically(self._path, json.dumps({"records": records, "ahead": ahead}))

    def read(self) -> dict[str, Any]:
        """How far it is open: the arguments of the last :meth:`open_to`."""
        return {"records": 0, "ahead": None, **_read(self._path)}

    def records(self) -> int:
        gate = self.read()
        limit = int(gate["records"])
        return limit if gate["ahead"] is None else min(limit, self._progress.committed() + int(gate["ahead"]))


HOT_KEY = "hot"
HOLD = "hold"


class Orders:
    """What the source of the workload does wrong, in ``orders.json``: ordered by a fault, obeyed by the generator from its next chunk on.

    ``hot_share``: so many of the records have the key ``HOT_KEY``. ``late_share``: so many are sent some chunks later than those beside
    them. ``twice``: every chunk is sent twice. ``hold``: nothing more is sent.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.path / "orders.json"

    def give(self, order: str, value: float) -> None:
        write_atomically(self._path, json.dumps({**self.active(), order: value}))

    def withdraw(self, order: str) -> None:
        write_atomically(self._path, json.dumps({name: value for name, value in self.active().items() if name != order}))

    def active(self) -> dict[str, float]:
        return _read(self._path)


def hot(key: bytes | None, sequence: int, share: float) -> bytes | None:
    """The key that a record is sent with."""
    return HOT_KEY.encode() if chosen(sequence, share) else key


def chosen(sequence: int, share: float) -> bool:
    """Whether a record is one of that share. It depends on its sequence alone."""
    return zlib.crc32(sequence.to_bytes(8, "big")) < share * 0x1_0000_0000


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return document
