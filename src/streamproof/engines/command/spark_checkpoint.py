"""How far a query of Spark has come, from its checkpoint folder: ``offsets/N`` says what batch N reads, ``commits/N`` that it is committed.

A batch began when ``offsets/N`` was written and was committed when ``commits/N`` was, by the times of the two files. A batch without
records is left out. When the job is to be judged, Spark must have committed each batch in this folder: a query with asynchronous progress
tracking names only some of its batches there.

Checked against: Spark 4.1 (``OffsetSeqLog``: a line with the version, one with metadata, then one for each source, ``-`` for a source
without an offset; ``CheckpointFileManager`` writes a file under another name, with a dot before it, and renames it).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from streamproof.engines.command.following import Commit

log = logging.getLogger("streamproof.engines.command.spark_checkpoint")


class DamagedCheckpoint(Exception):
    """A file of the checkpoint says something else than Spark writes there."""


class SparkCheckpointFolder:
    """The commits of a query that reads ``topic``."""

    def __init__(self, folder: Path, topic: str) -> None:
        self._folder, self._topic, self._seen = folder, topic, -1

    def close(self) -> None:
        """Nothing is open."""

    def commits(self, committed: Mapping[int, int]) -> Iterator[Commit]:
        for batch in sorted(number for number in _batches(self._folder / "commits") if number > self._seen):
            offsets, commit = self._folder / "offsets" / str(batch), self._folder / "commits" / str(batch)
            try:
                found = Commit(until(offsets, self._topic), _written(commit), batch, _written(offsets))
            except FileNotFoundError:  # the log was cleaned, or the commit was taken back
                log.debug("batch %d is not in %s any more", batch, self._folder)
                continue
            self._seen = batch
            yield found


def until(offsets: Path, topic: str) -> dict[int, int]:
    """Up to where a batch reads each partition of the topic. Raises DamagedCheckpoint when the file does not name the topic."""
    try:
        _, _, *sources = offsets.read_text().splitlines()
        found = [json.loads(line) for line in sources if line != "-"]
        ends = {int(partition): int(end) for each in found for partition, end in each.get(topic, {}).items()}
    except (ValueError, AttributeError) as error:
        raise DamagedCheckpoint(f"{offsets} cannot be read as Spark's offsets: {error}") from error
    if not any(topic in each for each in found):
        topics = ", ".join(name for each in found for name in each) or "nothing"
        raise DamagedCheckpoint(f"{offsets}: expected offsets of the topic {topic}, found {topics}: the job does not read its input topic")
    return ends


def why_nothing(checkpoint: Path) -> str:
    """What to do about a checkpoint in which nothing is committed."""
    if not (checkpoint / "offsets").is_dir():
        return "there is no checkpoint: give the query the option checkpointLocation with the folder that `progress` names"
    if _batches(checkpoint / "offsets"):
        return "Spark began a batch there and committed none: the job's log says why, or it needs more time (--timeout)"
    return "Spark has begun no batch there: have it read {input_topic} from the beginning (startingOffsets: earliest)"


def _batches(folder: Path) -> list[int]:
    try:
        return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
    except FileNotFoundError:
        return []


def _written(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
