"""What Spark's checkpoint says, read from its files (Spark 4.1, ``OffsetSeqLog``, ``CommitLog``).

``offsets/N`` fixes the input of batch N before it runs: a version, the batch's settings, and one line of offsets per source.
``commits/N`` appears once batch N is done.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

EARLIEST = -2


def last(folder: Path) -> int | None:
    """The last batch of a log's folder (``offsets``, ``commits``), None when there is none."""
    return max((int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()), default=None)


def until(checkpoint: Path, batch: int) -> dict[str, int]:
    """The end offsets of ``batch``, by partition. Raises FileNotFoundError when it was not planned."""
    return parse((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])


def watermark(checkpoint: Path, batch: int) -> int | None:
    """The watermark that ``batch`` runs with, in ms; None when the checkpoint does not say."""
    try:
        settings = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[1])
        return int(settings["batchWatermarkMs"])
    except (FileNotFoundError, IndexError, KeyError, ValueError):
        return None


def records(checkpoint: Path, batch: int) -> str:
    """Which input a batch holds, in words (``partition 0: offsets 10 to 19``); says so when the checkpoint does not know."""
    try:
        ends = until(checkpoint, batch)
        begins = until(checkpoint, batch - 1) if batch else {}
    except (FileNotFoundError, IndexError, ValueError):
        return "input unknown: the checkpoint has no offsets of it"
    ranges = ((partition, begins.get(partition, 0), end) for partition, end in sorted(ends.items(), key=lambda item: int(item[0])))
    return (
        ", ".join(f"partition {partition}: offsets {begin} to {end - 1}" for partition, begin, end in ranges if end > begin) or "no record"
    )


def committed(checkpoint: Path) -> dict[str, int]:
    """Up to where the checkpoint has committed, by partition; empty when it has committed nothing."""
    batch = last(checkpoint / "commits")
    return {} if batch is None else until(checkpoint, batch)


def parse(offsets: Any) -> dict[str, int]:
    """``{"topic": {"0": 17}}``, as Spark's Kafka source has it (an object or its JSON), without the topic.

    Partitions that start at the earliest offset are left out, and so are words such as ``earliest``.
    """
    if offsets is None or (isinstance(offsets, str) and not offsets.startswith("{")):
        return {}
    parsed = json.loads(offsets) if isinstance(offsets, str) else offsets
    return {partition: int(at) for partitions in parsed.values() for partition, at in partitions.items() if int(at) >= 0}
