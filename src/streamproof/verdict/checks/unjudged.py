"""Promises: what the evidence does not say, so that a promise is not judged on all records.

A promise that nothing contradicts is kept only if everything that it is about was judged. Each promise needs some evidence:

    atomic      each copy names the start and the batch that wrote it; the range of each visible batch is known; each ACKED record has
                an offset
    ordered     each ACKED record with a key has an offset
    monotonic   the output keeps versions, and the files of each one can be read

A job of the user's own need not name batches. A broker may acknowledge a retried record without repeating its offset. Records without a
key have no order, and INDETERMINATE records have no known place in the source: no promise is about them.

The files are read one row group at a time, a few columns of each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamproof.evidence.columns import flags, integers
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.histories import files
from streamproof.evidence.outcome import Outcome
from streamproof.verdict.checks.atomicity import ranges
from streamproof.verdict.checks.vanished import unseen
from streamproof.verdict.guarantee import Promise

SHOWN = 5


def unjudged(folder: RunFolder, promises: Collection[Promise], progress: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """A sentence for each promise that was not judged on all records."""
    missing = {
        Promise.ATOMIC: lambda: [*_without_batch(folder, progress), *_without_offset(folder, keyed=False)],
        Promise.ORDERED: lambda: _without_offset(folder, keyed=True),
        Promise.MONOTONIC: lambda: unseen(folder),
    }
    facts = {promise: list(missing[promise]()) for promise in sorted(promises)}
    return tuple(f"{promise} was not judged: {', '.join(found)}" for promise, found in facts.items() if found)


def _without_batch(folder: RunFolder, progress: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Copies that do not name their batch, and visible batches whose range no report gives."""
    nameless = copies = 0
    visible: set[int] = set()
    for table in _tables(folder.delivered, ["start", "batch"]):
        start, batch = integers(table["start"]), integers(table["batch"])
        named = (start >= 0) & (batch >= 0)
        copies += len(named)
        nameless += int(np.count_nonzero(~named))
        visible.update(batch[named & np.r_[True, (batch[1:] != batch[:-1]) | ~named[:-1]]].tolist() if len(named) else ())
    if nameless:
        yield f"{nameless} of {copies} copies do not name the batch that wrote them"
    if unreported := sorted(visible - set(ranges(progress))):
        more = f" and {len(unreported) - SHOWN} more" if len(unreported) > SHOWN else ""
        yield f"no report says what the visible batches {', '.join(map(str, unreported[:SHOWN]))}{more} read"


def _without_offset(folder: RunFolder, keyed: bool) -> list[str]:
    """ACKED records (with a key, if ``keyed``) whose place in the source is not known."""
    count = 0
    for table in _tables(folder.sent, ["offset", "outcome", "key"], "offset"):
        placeless = flags(table["offset"].is_null()) & flags(pc.equal(table["outcome"], Outcome.ACKED))
        count += int(np.count_nonzero(placeless & flags(table["key"].is_valid()) if keyed else placeless))
    return [f"{count} acknowledged records have no known offset in the source"] if count else []


def _tables(directory: Path, columns: list[str], nullable: str | None = None) -> Iterator[pa.Table]:
    """The row groups of these files; with ``nullable`` only those in which that column may hold a null."""
    for path in files(directory):
        try:
            file = pq.ParquetFile(path)
            for number in range(file.num_row_groups):
                if nullable is None or _may_hold_null(file, number, nullable):
                    yield file.read_row_group(number, columns=columns)
        except (OSError, pa.ArrowException, KeyError) as error:
            raise EvidenceError(f"{path} cannot be read as evidence: {error}") from error


def _may_hold_null(file: pq.ParquetFile, group: int, column: str) -> bool:
    statistics = file.metadata.row_group(group).column(file.schema_arrow.get_field_index(column)).statistics
    return statistics is None or not statistics.has_null_count or statistics.null_count > 0
