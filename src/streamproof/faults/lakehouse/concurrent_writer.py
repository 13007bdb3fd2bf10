"""``concurrent_writer``: somebody else commits to the table, again and again, while the job does.

The model: a team that changes the table's properties, maintenance, a second job. Commits of a table come one after the other: of two that
began at the same version one wins, and the other must look again. To a Delta table the other writer commits a change of the metadata, with
which every commit that had begun before conflicts: the batch fails, the driver with it, and the next start runs it again. To an Iceberg
table it commits a snapshot without rows; the job's own commit loses the race in the catalog, and Iceberg repeats it by itself.

Done by delta-rs or pyiceberg, which are other writers than the job's.

Evidence: it committed several times; the job committed between two of those, or a start of it ended; it committed a batch afterwards.
Checked against: Delta 4.4 and Iceberg 1.11 on Spark 4.1, delta-rs 1.6, pyiceberg 0.12.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field

from streamproof.evidence.folder import RunFolder
from streamproof.faults.ended import ended
from streamproof.faults.fault import DRIVER, EvidenceCheck, Parameters, RunContext
from streamproof.faults.lakehouse import tables
from streamproof.jobs.profile import JobProfile, Trait
from streamproof.testbed.embedded import Testbed

GOES_ON_S = 120.0
TABLE_S = 60.0
LONGEST_S = 60.0
PROPERTY = "streamproof.another_writer"


class ConcurrentWriterParameters(Parameters):
    seconds: float = Field(
        4.0, ge=0.5, le=60.0, description="How long it goes on committing, in s; longer, up to a minute, until the job has met it"
    )
    every_s: float = Field(0.3, ge=0.02, le=10.0, description="How long it waits between two commits, in s")


class ConcurrentWriter(tables.TableFault):
    name = "concurrent_writer"
    summary = "Commit to the table of Delta or Iceberg as another writer, again and again, beside the job"
    parameters_model: type[Parameters] = ConcurrentWriterParameters
    occupies = frozenset({"the table", DRIVER})

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        return {"seconds": round(rng.uniform(1.0, 4.0), 1)}

    def batches(self, parameters: Any) -> int:
        return 4

    def aim(self, run: RunContext, parameters: Parameters) -> dict[str, Any]:
        run.wait_for("the table to be there", lambda: tables.newest(run) is not None, TABLE_S)
        return {"role": self.target, "before": tables.newest(run), "start": run.driver()["start"]}

    def inject(self, run: RunContext, parameters: Any, target: dict[str, Any]) -> None:
        commit, committed, lost = _writer(run), list[int](), 0
        begun = time.monotonic()
        while (lasted := time.monotonic() - begun) < parameters.seconds or (lasted < LONGEST_S and not _met(run, target, committed)):
            run.check_alive()
            number = commit(len(committed))
            lost += number is None
            committed += [] if number is None else [number]
            time.sleep(parameters.every_s)
        target |= {"committed": committed, "lost_races": lost}

    def evidence(self, run: RunContext, parameters: Parameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        mine = target["committed"]
        several = EvidenceCheck("another writer committed several times", len(mine) > 1, f"{len(mine)} times, lost {target['lost_races']}")
        detail = f"{_between(mine)} of its commits lie between those; starts {ended(run.folder, target['start']) or 'none'} ended"
        return [several, EvidenceCheck("the job met it", _met(run, target, mine), detail), run.goes_on(GOES_ON_S)]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        """There is nothing to undo: the rows are the same."""
        return []


def _met(run: RunContext, target: dict[str, Any], committed: Sequence[int]) -> bool:
    return _between(committed) > 0 or bool(ended(run.folder, target["start"]))


def _between(committed: Sequence[int]) -> int:
    """How many versions lie between these that are somebody else's."""
    return max(committed) - min(committed) + 1 - len(committed) if committed else 0


def _writer(run: RunContext) -> Callable[[int], int | None]:
    """What commits once, and says which version that was; None where another commit came first."""
    return _to_delta(run) if Trait.DELTA_TABLE in run.profile.traits else _to_iceberg(run)


def _to_delta(run: RunContext) -> Callable[[int], int | None]:
    import deltalake
    from deltalake.exceptions import CommitFailedError

    def commit(number: int) -> int | None:
        table = deltalake.DeltaTable(str(tables.folder(run)))
        try:
            table.alter.set_table_properties({PROPERTY: str(number)}, raise_if_not_exists=False)
        except CommitFailedError:
            return None
        return table.version()

    return commit


def _to_iceberg(run: RunContext) -> Callable[[int], int | None]:
    from pyiceberg.exceptions import CommitFailedException

    def commit(number: int) -> int | None:
        table = tables.opened(run)
        try:
            table.append(table.schema().as_arrow().empty_table(), snapshot_properties={PROPERTY: str(number)})
        except CommitFailedException:
            return None
        snapshot = table.current_snapshot()
        return None if snapshot is None else snapshot.sequence_number

    return commit
