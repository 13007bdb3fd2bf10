"""How far a job on Flink has come whose output does not say it: the offsets that it commits, once what belongs to them is delivered.

Flink tells its operators that a checkpoint is complete. The source then commits its offsets to the group, the sink its transactions: which
comes first is not said. Two checkpoints later both are done.

Checked against: Flink 2.3 (a sink commits what belongs to a checkpoint before it takes part in the next but one).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from streamproof.engines.command.following import Commit
from streamproof.engines.command.group import GroupOffsets
from streamproof.engines.command.job import CommandJob
from streamproof.engines.flink import restored


class CheckpointedOffsets(GroupOffsets):
    def __init__(self, job: CommandJob, bootstrap: str, checkpoints: Path) -> None:
        super().__init__(job, bootstrap)
        self._checkpoints = checkpoints
        self._seen: tuple[Mapping[int, int], int] = {}, 0

    def commits(self, committed: Mapping[int, int]) -> Iterator[Commit]:
        """They say how far it is, and not what it goes on from: that is a checkpoint."""
        yield from (replace(commit, of_output=True) for commit in super().commits(committed))

    def through(self, until: Mapping[int, int]) -> bool:
        newest = max(map(restored.newest_number, self._checkpoints.glob("*")), default=0)
        if until != self._seen[0]:
            self._seen = dict(until), newest
        return newest >= self._seen[1] + 2
