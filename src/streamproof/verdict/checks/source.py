"""The source: whether it holds what it acknowledged.

``source.json`` says where each partition of the input ended when the output was drained. Every ACKED record has an offset before that end:
records may expire at the beginning of a partition, but never at its end. When an ACKED record's offset lies behind the end, the source lost
the record after it had acknowledged it (an unclean election does that), and no job could deliver it. A retried record may be acknowledged
without its offset. It has a place in its partition all the same: a partition that acknowledged more records than it has offsets lost the
rest.

The files of ``sent/`` are read one by one, and only those that can hold such a record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.histories import files
from streamproof.evidence.outcome import Outcome

_COLUMNS = ["partition", "offset", "outcome"]


def read_ends(folder: RunFolder) -> dict[int, int]:
    """Where each partition of the input ended; empty when the drain did not look. Raises EvidenceError when the file is damaged."""
    if not folder.source.exists():
        return {}
    try:
        return {int(partition): int(end) for partition, end in folder.read_json(folder.source)["end_offsets"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EvidenceError(f"{folder.source} is damaged: {type(error).__name__}: {error}") from error


def behind_the_end(folder: RunFolder, acked: Mapping[int, int]) -> int:
    """How many ACKED records lie behind the end of their partition. ``acked`` counts those of each partition."""
    ends = read_ends(folder)
    if not ends:
        return 0
    nearest, behind = min(ends.values()), Counter[int]()
    for path in files(folder.sent):
        if _highest(path) < nearest:
            continue
        for partition, offsets in _acked(path):
            behind[partition] += int((offsets >= ends.get(partition, np.iinfo(np.int64).max)).sum())
    return sum(max(behind[partition], acked.get(partition, 0) - end) for partition, end in ends.items())


def acknowledged(folder: RunFolder) -> dict[int, tuple[int, int]]:
    """Of each partition how many records were ACKED, and the highest of their offsets."""
    counts: Counter[int] = Counter()
    highest: dict[int, int] = {}
    for path in files(folder.sent):
        for partition, offsets in _acked(path):
            counts[partition] += len(offsets)
            highest[partition] = max(highest.get(partition, -1), int(offsets.max()))
    return {partition: (counts[partition], highest[partition]) for partition in sorted(counts)}


def _acked(path: Path) -> Iterator[tuple[int, np.ndarray]]:
    try:
        table = pq.read_table(path, columns=_COLUMNS)
        acked = np.asarray(table["outcome"].to_numpy(zero_copy_only=False) == Outcome.ACKED)
        partition, offset = (np.asarray(table[name].cast(pa.int64()).fill_null(-1).to_numpy())[acked] for name in _COLUMNS[:2])
    except (OSError, pa.ArrowException, KeyError) as error:
        raise EvidenceError(f"{path} cannot be read as evidence: {error}") from error
    for number in np.unique(partition).tolist():
        yield number, offset[partition == number]


def _highest(path: Path) -> int:
    """The highest offset in a file, as its statistics say; beyond any when they do not."""
    beyond = int(np.iinfo(np.int64).max)
    try:
        parquet = pq.ParquetFile(path)
        column = parquet.schema_arrow.get_field_index("offset")
        statistics = [parquet.metadata.row_group(number).column(column).statistics for number in range(parquet.num_row_groups)]
    except (OSError, pa.ArrowException) as error:
        raise EvidenceError(f"{path} cannot be read as evidence: {error}") from error
    return max((int(chunk.max) if chunk is not None and chunk.has_min_max else beyond for chunk in statistics), default=-1)
