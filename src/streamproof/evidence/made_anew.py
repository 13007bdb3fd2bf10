"""Places in an input topic that was deleted and made again while a run went on.

The new topic counts its offsets from 0, so the offset of a record no longer names one place. In the evidence it does: the records of the
new topic are counted on behind those of the old one. ``made_anew.json`` says where the old one ended (``base``), and which micro-batch of
the job was the last that was committed before (``after_batch``). Whoever reads an offset from Kafka, or from the job's checkpoint, and
writes it down as evidence asks here; whoever judges knows of one topic whose offsets only grow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from streamproof.evidence.folder import RunFolder, write_atomically

Partition = TypeVar("Partition", int, str)


@dataclass(frozen=True)
class MadeAnew:
    """``base`` has the end of each partition of the topic before; it is empty while the topic is the first one."""

    base: dict[int, int] = field(default_factory=dict)
    after_batch: int = -1

    @classmethod
    def of(cls, folder: RunFolder) -> MadeAnew:
        try:
            document = json.loads(_file(folder).read_text())
        except FileNotFoundError:
            return cls()
        return cls({int(partition): int(end) for partition, end in document["base"].items()}, int(document["after_batch"]))

    def write(self, folder: RunFolder) -> None:
        document = {"base": {str(partition): end for partition, end in self.base.items()}, "after_batch": self.after_batch}
        write_atomically(_file(folder), json.dumps(document))

    def placed(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """Offsets of the topic that is there now, as the evidence counts them."""
        return {partition: offset + self.base.get(int(partition), 0) for partition, offset in offsets.items()}

    def committed(self, offsets: Mapping[Partition, int], batch: int) -> dict[Partition, int]:
        """Up to where the job's checkpoint says that this batch took each partition: of the topic before, or of the one now."""
        return self.placed(offsets) if batch > self.after_batch else dict(offsets)


def _file(folder: RunFolder) -> Path:
    return folder.path / "made_anew.json"
