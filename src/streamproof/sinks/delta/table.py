"""A Delta table as output. Drained by the table's own log; the second reader is ``delta-rs``, whose code shares nothing with that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from streamproof.evidence.folder import EvidenceError
from streamproof.jobs.job import Job
from streamproof.sinks.delta import log
from streamproof.sinks.delta.log import Version
from streamproof.sinks.lakehouse.table import Contents, File, LakeTable
from streamproof.testbed.embedded import Testbed

COMPACTION = "OPTIMIZE"


class DeltaTable(LakeTable):
    extra = "delta"

    def contents(self, job: Job, testbed: Testbed) -> Contents:
        history = log.versions(job.files)
        return Contents(files(job.files, history), end(history), len(history))

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


def files(table: Path, history: Sequence[Version]) -> list[File]:
    """The files of the newest version, in the order of their names."""
    return [File(table / name, file.written_ms, file.version.told) for name, file in log.active(history).items()]


def end(history: Sequence[Version]) -> list[int] | None:
    return [history[-1].number, history[-1].at_ms] if history else None


def files_again(table: Path) -> dict[Path, int]:
    """The files of the newest version as delta-rs lists them, each with when its rows were written, in ms: of a compaction's file, when the
    oldest of those was that went as it came. Raises EvidenceError."""
    import deltalake
    from deltalake.exceptions import DeltaError

    if not (table / log.LOG).is_dir():
        return {}
    written = dict[str, int]()
    try:
        versions = deltalake.DeltaTable(str(table))
        operations = {int(each["version"]): str(each["operation"]) for each in versions.history()}
        for number in sorted(operations):
            versions.load_as_version(number)
            there = {each["path"]: int(each["modification_time"]) for each in pa.table(versions.get_add_actions()).to_pylist()}
            before, written = written, {name: written.get(name, at) for name, at in there.items()}
            if operations[number] == COMPACTION:
                oldest = min(at for name, at in before.items() if name not in there)
                written |= dict.fromkeys(there.keys() - before.keys(), oldest)
    except DeltaError as error:
        raise EvidenceError(f"{table}: delta-rs cannot read the table: {error}") from error
    return {table / name: at for name, at in sorted(written.items())}
