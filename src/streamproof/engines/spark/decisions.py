"""The durable decision log of a two-phase commit.

One file a batch. ``decide`` makes the file appear whole, once, and forced to disk, or not at all: from then on the batch *is*
committed, whoever dies, because every start finishes what was decided. ``finish`` renames it. A decision is never changed.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from streamproof.kafka.transactions import Prepared

# A query that is stopped does not wait for what its driver does with a batch: the recovery after it must not abort what the other is just
# about to decide. One lock for all jobs of a process; there is one.
DECIDING = threading.Lock()


class DecisionLog:
    """Decisions of one query, in a folder beside its checkpoint that drivers and executors can see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, batch: int) -> list[Prepared] | None:
        """The transactions that were decided for ``batch``, or None when nothing was."""
        for path in (self._open(batch), self._done(batch), self._open(batch)):
            try:
                return [Prepared(**transaction) for transaction in json.loads(path.read_text())]
            except FileNotFoundError:
                continue
        return None

    def decide(self, batch: int, transactions: list[Prepared]) -> None:
        """Log the decision to commit. Raises FileExistsError when the batch was decided before.

        There is one writer at a time: a driver's start begins when the last one has ended.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._done(batch).exists():
            raise FileExistsError(f"batch {batch} was decided and carried out before: {self._done(batch)}")
        temporary = self.folder / f".{batch}.{os.getpid()}"
        with temporary.open("w") as file:
            json.dump([transaction.to_dict() for transaction in transactions], file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, self._open(batch))
        finally:
            temporary.unlink()
        self._sync()

    def finish(self, batch: int) -> None:
        """Note that every transaction of the decision was committed."""
        try:
            os.rename(self._open(batch), self._done(batch))
        except FileNotFoundError:
            return
        self._sync()

    def unfinished(self) -> dict[int, list[Prepared]]:
        """Decisions that may not have been carried out yet, by batch."""
        decisions = {}
        for path in sorted(self.folder.glob("*.decided")):
            decisions[int(path.stem)] = [Prepared(**transaction) for transaction in json.loads(path.read_text())]
        return decisions

    def _open(self, batch: int) -> Path:
        return self.folder / f"{batch}.decided"

    def _done(self, batch: int) -> Path:
        return self.folder / f"{batch}.done"

    def _sync(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
