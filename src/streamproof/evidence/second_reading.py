"""What a second reader read of the output once more: all of it, or stretches of it, as ``delivered_again/ranges.json`` says.

A large output is read in stretches. They are chosen by a hash of the run's seed, the partition and the offset, so that a run chooses the
same ones when its drain is repeated, and nobody who writes the output can know them. The last stretch of each partition is always one of
them: it shows a drain that stopped early.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamproof.evidence.folder import EvidenceError, RunFolder, write_atomically

MOST_RECORDS = 1_000_000
"""An output of at most so many records is read twice as a whole; of a larger one, stretches that hold at most so many."""
STRETCH_RECORDS = 10_000


@dataclass(frozen=True, order=True)
class Stretch:
    """A part of one partition of the output: the offsets from ``since`` on, up to ``until``, which is no part of it."""

    partition: int
    since: int
    until: int


@dataclass(frozen=True)
class SecondReading:
    """``ends`` is where each partition ends, as the second reader's own client has it; ``records`` is how many it read."""

    whole: bool
    records: int
    ends: Mapping[int, int]
    stretches: tuple[Stretch, ...]

    def write(self, folder: RunFolder) -> None:
        document = {
            "whole": self.whole,
            "records": self.records,
            "ends": {str(partition): end for partition, end in sorted(self.ends.items())},
            "ranges": [vars(stretch) for stretch in self.stretches],
        }
        write_atomically(path(folder), json.dumps(document, indent=1) + "\n")

    @classmethod
    def read(cls, folder: RunFolder) -> SecondReading | None:
        """None when the output was read once. Raises EvidenceError when the file is damaged."""
        if not path(folder).exists():
            return None
        document = folder.read_json(path(folder))
        try:
            ends = {int(partition): int(end) for partition, end in document["ends"].items()}
            return cls(bool(document["whole"]), int(document["records"]), ends, tuple(Stretch(**one) for one in document["ranges"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EvidenceError(f"{path(folder)} is damaged: {type(error).__name__}: {error}") from error


def path(folder: RunFolder) -> Path:
    return Path(folder.delivered_again) / "ranges.json"


def everything(ends: Mapping[int, int]) -> tuple[Stretch, ...]:
    """All of an output whose partitions end there."""
    return tuple(Stretch(partition, 0, end) for partition, end in sorted(ends.items()) if end > 0)


def sample(ends: Mapping[int, int], seed: int, most: int = MOST_RECORDS, size: int = STRETCH_RECORDS) -> tuple[Stretch, ...]:
    """Stretches of an output whose partitions end there, with at most ``most`` offsets in all."""
    size = max(1, min(size, most // max(len(ends), 1)))
    candidates = [Stretch(partition, max(until - size, 0), until) for partition, end in ends.items() for until in range(end, 0, -size)]
    candidates.sort(key=lambda stretch: (stretch.until < ends[stretch.partition], _hash(seed, stretch)))
    return tuple(sorted(_first(candidates, most)))


def _first(stretches: Iterable[Stretch], most: int) -> Iterable[Stretch]:
    left = most
    for stretch in stretches:
        left -= stretch.until - stretch.since
        if left < 0:
            return
        yield stretch


def _hash(seed: int, stretch: Stretch) -> bytes:
    return hashlib.blake2b(f"{seed}:{stretch.partition}:{stretch.since}".encode(), digest_size=8).digest()
