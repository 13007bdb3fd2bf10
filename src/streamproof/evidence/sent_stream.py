"""Outcomes of sends while they come: ``sent/NNNNN.arrows``, a stream of Arrow record batches with the columns of ``sent/NNNNN.parquet``.

The generator appends the outcomes of each chunk, so that they survive its death. :func:`fold` makes a Parquet file of a stream. The
generator does so itself with each file that is full; what a killed one left is folded by the next generator, or by the drain. The end of a
stream may be torn: the batches before the tear count, and what they lack is INDETERMINATE by the intents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from streamproof.evidence.histories import SENT_WRITTEN, SentRow, sent_table, write_table

SUFFIX = ".arrows"


class SentStream:
    """A stream that is written: one record batch for each :meth:`append`. Nothing is forced to disk: the kernel keeps what a killed
    process wrote."""

    def __init__(self, path: Path) -> None:
        self.path, self.records = path, 0
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_stream(self._file, SENT_WRITTEN)

    def append(self, rows: Sequence[SentRow]) -> None:
        if rows:
            self._writer.write_table(sent_table(rows))
            self.records += len(rows)

    def fold(self) -> None:
        """End the stream and make a Parquet file of it."""
        self._writer.close()
        self._file.close()
        fold(self.path)


def fold_all(directory: Path) -> None:
    """Fold every stream that its writer left. No writer may be at work."""
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        fold(path)


def fold(path: Path) -> None:
    """Put the Parquet file in the place of the stream. A stream that was folded before, but not removed, is removed."""
    target = path.with_suffix(".parquet")
    if not target.exists():
        batches = list(_read(path))
        if batches:
            write_table(target, pa.Table.from_batches(batches, SENT_WRITTEN))
    path.unlink()


def _read(path: Path) -> Iterator[pa.RecordBatch]:
    """The record batches before the end, or before the tear."""
    with pa.OSFile(str(path), "rb") as file:
        try:
            yield from pa.ipc.open_stream(file)
        except (OSError, pa.ArrowInvalid):
            return
