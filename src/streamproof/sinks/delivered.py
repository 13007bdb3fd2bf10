"""How a drain writes what it finds: beside what an earlier one found, and in its place once all of it is there."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from streamproof.evidence import histories
from streamproof.evidence.files import utc_now
from streamproof.evidence.folder import RunFolder, write_atomically
from streamproof.verdict.timing.recovery import Stamps

NEW = ".new"  # below delivered/: what is drained, until all of it is there
FILE_RECORDS = 4_000_000
GROUP_RECORDS = 1 << 17
log = logging.getLogger("streamproof.sinks.delivered")


class Delivered:
    """The files of ``delivered/`` and ``drain.json``, made anew."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._files, self.records = folder, 0, 0
        self._begun = time.monotonic()
        self._new = folder.delivered / NEW
        shutil.rmtree(self._new, ignore_errors=True)
        self._new.mkdir(parents=True)
        self._file: histories.DeliveredFile | None = None
        self._waiting: list[pa.Table] = []

    def write(self, columns: Mapping[str, Any]) -> None:
        """Add rows: ``columns`` are those of ``histories.DELIVERED``. They lie in memory until there are enough for a group of rows."""
        self._waiting.append(pa.table(dict(columns), schema=histories.DELIVERED))
        self.records += len(self._waiting[-1])
        if sum(map(len, self._waiting)) >= GROUP_RECORDS:
            self._flush()

    def _flush(self) -> None:
        rows, self._waiting = pa.concat_tables(self._waiting) if self._waiting else None, []
        if not rows:
            return
        if self._file is None:
            self._file = histories.DeliveredFile(self._new / f"{self._files:05d}.parquet")
            self._files += 1
        self._file.write(rows)
        if self._file.records >= FILE_RECORDS:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def settle(self, reason: str | None, end_offsets: Mapping[int, int], stamps: Stamps, end: Any, **more: Any) -> dict[str, Any]:
        """Put the new files in place of the old, and say in ``drain.json`` whether they are all there is; ``reason`` is why not, ``stamps``
        what their ``delivered_at`` is the time of, ``end`` where the output ended (``Sink.end``).

        As long as this goes on there is no ``drain.json``, and so no evidence to judge by.
        """
        self._flush()
        self._close()
        self._folder.drain.unlink(missing_ok=True)
        for old in histories.files(self._folder.delivered):
            old.unlink()
        for new in histories.files(self._new):
            new.rename(self._folder.delivered / new.name)
        self._new.rmdir()
        seconds = max(time.monotonic() - self._begun, 1e-6)
        drained = {
            "complete": reason is None,
            "reason": reason,
            "stamps": stamps,
            "end_offsets": {str(partition): end for partition, end in sorted(end_offsets.items())},
            "records": self.records,
            "end": end,
            "ended_at": utc_now(),
            "seconds": round(seconds, 3),
            "records_per_s": round(self.records / seconds, 1),
            **more,
        }
        write_atomically(self._folder.drain, json.dumps(drained))
        log.info("drained %d records in %.1f s%s", self.records, seconds, "" if reason is None else f", not to the end: {reason}")
        return drained
