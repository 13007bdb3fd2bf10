"""A Delta table as output. Drained by the table's own log; the second reader is ``delta-rs``, whose code shares nothing with that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from streamproof.evidence.folder import EvidenceError
from streamproof.evidence.versions import Version
from streamproof.jobs.job import Job
from streamproof.sinks.delta import log
from streamproof.sinks.lakehouse.history import Files, History
from streamproof.sinks.lakehouse.table import Contents, File, LakeTable
from streamproof.testbed.embedded import Testbed

COMPACTION = "OPTIMIZE"


class DeltaTable(LakeTable):
    extra = "delta"

    def contents(self, job: Job, testbed: Testbed) -> Contents:
        found = log.versions(job.files)
        return Contents(files(job.files, found), end(found), len(found))

    def history(self, job: Job, testbed: Testbed) -> History:
        return history(job.files)

    def history_again(self, job: Job, testbed: Testbed) -> list[Files]:
        return history_again(job.files)

    def files_again(self, job: Job, testbed: Testbed) -> dict[Path, int]:
        return files_again(job.files)

    def reader(self, job: Job, testbed: Testbed) -> VersionsReader:
        return VersionsReader(job.files)


class VersionsReader:
    """A version becomes visible as a whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def visible(self) -> dict[int, int]:
        return {int(path.stem): 1 for path in (self._folder / log.LOG).glob("*.json") if path.stem.isdigit()}

    def close(self) -> None:
        return


def files(table: Path, history: Sequence[log.Version]) -> list[File]:
    """The files of the newest version, in the order of their names."""
    return [File(table / name, file.written_ms, file.version.told) for name, file in log.active(history).items()]


def end(history: Sequence[log.Version]) -> list[int] | None:
    return [history[-1].number, history[-1].at_ms] if history else None


def history(table: Path) -> History:
    """Every version of the table, if there is one."""
    found = log.versions(table)
    paths = [(tuple(table / name for name in each.added), tuple(table / name for name in each.removed)) for each in found]
    return History([Version(each.at_ms, each.told, *changed) for each, changed in zip(found, paths, strict=True)])


def history_again(table: Path) -> list[Files]:
    """The files of every version as delta-rs lists them. Raises EvidenceError."""
    return [frozenset(table / name for name in there) for _, there in versions_again(table)]


def files_again(table: Path) -> dict[Path, int]:
    """The files of the newest version as delta-rs lists them, each with when its rows were written, in ms: of a compaction's file, when the
    oldest of those was that went as it came. Raises EvidenceError."""
    written = dict[str, int]()
    for operation, there in versions_again(table):
        before, written = written, {name: written.get(name, at) for name, at in there.items()}
        if operation == COMPACTION:
            oldest = min(at for name, at in before.items() if name not in there)
            written |= dict.fromkeys(there.keys() - before.keys(), oldest)
    return {table / name: at for name, at in sorted(written.items())}


def versions_again(table: Path) -> list[tuple[str, dict[str, int]]]:
    """Every version as delta-rs finds it: its operation, and its files with the time of each, in ms. Raises EvidenceError."""
    import deltalake
    from deltalake.exceptions import DeltaError

    if not (table / log.LOG).is_dir():
        return []
    found = []
    try:
        versions = deltalake.DeltaTable(str(table))
        operations = {int(each["version"]): str(each["operation"]) for each in versions.history()}
        for number in sorted(operations):
            versions.load_as_version(number)
            rows = pa.table(versions.get_add_actions()).to_pylist()
            found.append((operations[number], {each["path"]: int(each["modification_time"]) for each in rows}))
    except DeltaError as error:
        raise EvidenceError(f"{table}: delta-rs cannot read the table: {error}") from error
    return found
