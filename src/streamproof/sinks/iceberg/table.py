"""An Iceberg table as output, its catalog in the testbed's PostgreSQL.

Drained by the table's metadata; the second reader is ``pyiceberg``, whose code shares nothing with that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from streamproof.evidence.folder import EvidenceError
from streamproof.jobs.job import Job
from streamproof.sinks.iceberg import metadata
from streamproof.sinks.iceberg.catalog import Catalog
from streamproof.sinks.iceberg.metadata import Snapshot, path_of
from streamproof.sinks.lakehouse.history import Files, History
from streamproof.sinks.lakehouse.table import Contents, LakeTable
from streamproof.sinks.own_schema import schema_of
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.timing.recovery import Stamps

if TYPE_CHECKING:
    from pyiceberg.table import StaticTable
    from pyiceberg.table.snapshots import Snapshot as PySnapshot

NAMESPACE, TABLE = "streamproof", "delivered"


class ByMetadata:
    """What is the same of every Iceberg table, whoever made it and whatever its catalog is: all is found from its newest metadata file."""

    extra: ClassVar[str] = "iceberg"

    def metadata(self, job: Job, testbed: Testbed) -> Path | None:
        """The table's newest metadata file, None where there may be no table yet. Raises EvidenceError when there must be one."""
        raise NotImplementedError

    def contents(self, job: Job, testbed: Testbed) -> Contents:
        return contents(self.metadata(job, testbed))

    def history(self, job: Job, testbed: Testbed) -> History:
        return history(self.metadata(job, testbed))

    def history_again(self, job: Job, testbed: Testbed) -> list[Files | None]:
        return history_again(self.metadata(job, testbed))


class IcebergTable(ByMetadata, LakeTable):
    stamps = Stamps.VISIBLE

    def create(self, job: Job, testbed: Testbed, partitions: int) -> None:
        super().create(job, testbed, partitions)
        catalog(job, testbed.direct_postgres).create()

    def metadata(self, job: Job, testbed: Testbed) -> Path | None:
        return catalog(job, testbed.direct_postgres).metadata(NAMESPACE, TABLE)

    def files_again(self, job: Job, testbed: Testbed) -> dict[Path, int]:
        return files_again(self.metadata(job, testbed))

    def reader(self, job: Job, testbed: Testbed) -> SnapshotsReader:
        return SnapshotsReader(lambda: self.metadata(job, testbed))

    def delete(self, job: Job, testbed: Testbed) -> None:
        super().delete(job, testbed)
        catalog(job, testbed.direct_postgres).drop()


class SnapshotsReader:
    """A snapshot becomes visible as a whole. ``newest`` gives the table's newest metadata file, None where there is no table yet."""

    def __init__(self, newest: Callable[[], Path | None]) -> None:
        self._newest = newest

    def visible(self) -> dict[int, int]:
        current = self._newest()
        return {} if current is None else {snapshot.number: 1 for snapshot in metadata.snapshots(current)}

    def close(self) -> None:
        return


def catalog(job: Job, conninfo: str) -> Catalog:
    """The catalog of a run, in PostgreSQL at ``conninfo``."""
    return Catalog(conninfo, schema_of(job))


def contents(current: Path | None) -> Contents:
    """Of the table with this metadata file."""
    line = [] if current is None else metadata.snapshots(current)
    return Contents(metadata.active(line), end(line), len(line))


def end(line: Sequence[Snapshot]) -> Any:
    return [line[-1].id, line[-1].at_ms] if line else None


def history(current: Path | None) -> History:
    """Every snapshot that was the current one, of the table with this metadata file."""
    return History() if current is None else metadata.history(current)


def history_again(current: Path | None) -> list[Files | None]:
    """The files of each snapshot that was the current one as pyiceberg finds them; None for one whose metadata are gone. Raises
    EvidenceError."""
    from pyiceberg.exceptions import NoSuchTableError, ValidationError
    from pyiceberg.table import StaticTable

    found, before = list[Files | None](), None
    try:
        for path in metadata.documents(current) if current is not None else ():
            if not path.exists():
                continue
            table = StaticTable.from_metadata(str(path))
            snapshot = table.current_snapshot()
            if (now := snapshot and snapshot.snapshot_id) == before:
                continue
            before = now
            if snapshot is not None or found:
                found.append(_planned(table))
    except (NoSuchTableError, ValidationError, ValueError) as error:
        raise EvidenceError(f"{current}: pyiceberg cannot read the table: {error}") from error
    return found


def _planned(table: StaticTable) -> Files | None:
    """What it would read; None where it finds no metadata of that."""
    try:
        return frozenset(path_of(task.file.file_path) for task in table.scan().plan_files())
    except OSError:
        return None


def files_again(current: Path | None) -> dict[Path, int]:
    """The files of the newest snapshot as pyiceberg lists them, each with when its rows were written, in ms: of a compaction's file, when
    the oldest of those was that went as it came. Raises EvidenceError."""
    from pyiceberg.exceptions import NoSuchTableError, ValidationError
    from pyiceberg.table import StaticTable

    if current is None:
        return {}
    try:
        table = StaticTable.from_metadata(str(current))
        known, line = {each.snapshot_id: each for each in table.snapshots()}, []
        snapshot = table.current_snapshot()
        while snapshot is not None:
            line.append(snapshot)
            snapshot = known.get(snapshot.parent_snapshot_id or -1)
        written = dict[str, int]()
        for place, snapshot in enumerate(reversed(line)):
            there = {task.file.file_path for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()}
            added, operation = there - written.keys(), snapshot.summary.operation.value if snapshot.summary else "append"
            oldest = min((at for name, at in written.items() if name not in there), default=snapshot.timestamp_ms)
            at = oldest if operation == metadata.COMPACTION else snapshot.timestamp_ms
            of_others = _of_others(table, snapshot) if place == 0 else frozenset()  # theirs have expired
            new = {name: _modified(name) if name in of_others else at for name in added}
            written = {name: when for name, when in written.items() if name in there} | new
    except (NoSuchTableError, ValidationError, ValueError, OSError) as error:
        raise EvidenceError(f"{current}: pyiceberg cannot read the table: {error}") from error
    return {path_of(name): at for name, at in sorted(written.items())}


def _of_others(table: StaticTable, snapshot: PySnapshot) -> frozenset[str]:
    """The snapshot's files that another one added."""
    entries = table.inspect.entries(snapshot_id=snapshot.snapshot_id).to_pylist()
    return frozenset(entry["data_file"]["file_path"] for entry in entries if entry["snapshot_id"] != snapshot.snapshot_id)


def _modified(name: str) -> int:
    return int(path_of(name).stat().st_mtime * 1000)
