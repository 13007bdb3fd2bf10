"""``full_disk``: the disk with the checkpoint, or with the table, has no space left for a while.

The model: a volume that fills up with logs, a quota. Spark cannot plan or commit a micro-batch and the query fails; so does a strategy that
keeps decisions beside the checkpoint. A driver that is started again fails again, until somebody makes room. What was begun meanwhile must
be neither lost nor doubled; half-written files must not be taken for whole ones.

While the driver is stopped (SIGSTOP), the checkpoint is copied onto a small file system in memory (tmpfs), which is mounted in its place
and filled up. Healing copies it back and takes the file system away.

With ``disk: table`` that is done to the folder of a Delta or an Iceberg table, between two batches, when no task writes into it. Names can
still be made on a full disk, only nothing behind them: data files, entries of the log and metadata are cut short wherever a writer does not
write beside and rename. Room is made first, and the file system is taken away between two batches again.

Evidence: a probe of 4 KiB is refused with ENOSPC all the while, a driver ended and its log names it, the job commits nothing meanwhile, and
goes on afterwards. Only root can mount: elsewhere the run is refused before it starts.
Checked against: Linux (mount(2)), Spark 4.1 (``CheckpointFileManager`` writes beside and renames), Delta 4.4, Iceberg 1.11.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import Field

from streamproof.engines.spark import failpoints
from streamproof.evidence.folder import RunFolder
from streamproof.faults.ended import ended_saying
from streamproof.faults.fault import DRIVER, STALL, EvidenceCheck, FaultError, RunContext
from streamproof.faults.lakehouse import tables
from streamproof.faults.outage import EVIDENCE_S, Outage, OutageParameters
from streamproof.faults.process.hold import driver_stopped
from streamproof.faults.spark.lose_last_commit import at_rest
from streamproof.jobs.failpoint import Site
from streamproof.jobs.profile import JobProfile, Trait
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import TestbedError, stopped

SPACE, ROOM = 1 << 20, 1 << 30
REST_S, WATCH_S = 60.0, 0.001
BALLAST, PROBE = ".ballast", ".probe"
SAYS = "No space left on device"


class Disk(StrEnum):
    CHECKPOINT = "checkpoint"
    TABLE = "table"


class FullDiskParameters(OutageParameters):
    disk: Disk = Field(Disk.CHECKPOINT, description="Which disk is full: that of the checkpoint, or that of the Delta or Iceberg table")


class FullDisk(Outage):
    what = "the disk"
    name = "full_disk"
    summary = "Leave no space on the disk with the checkpoint, or with the table"
    target = "the disk"
    parameters_model = FullDiskParameters
    of_traits = frozenset({Trait.CHECKPOINT})
    occupies = frozenset({DRIVER, STALL})
    sites = frozenset[Site]()

    def prevented(self) -> str | None:
        if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("mount") is None:
            return "it mounts a small file system over the checkpoint, which only root on Linux can; run as root, or without it"
        return None

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        """Not by chance: not everybody is root, and a seed means the same plan everywhere."""
        return None

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        super().check(profile, parameters)
        if parameters.get("disk") == Disk.TABLE:
            tables.check(f"{self.name}: disk: table", profile)

    def aim(self, run: RunContext, parameters: FullDiskParameters) -> dict[str, Any]:
        of_table = parameters.disk is Disk.TABLE
        target = {
            "role": f"the {parameters.disk}'s disk",
            "folder": str((run.job.files if of_table else run.folder.checkpoint).absolute()),
            "rests": str(run.job.checkpoint().absolute()) if of_table else None,
            "driver_file": str(run.folder.path / "driver.json"),
            "start": run.driver()["start"],
        }
        if not all(self.answers(run.testbed, target)):
            raise FaultError(f"{self.what} is full before the fault was injected")
        return target

    def take_down(self, testbed: Testbed, target: dict[str, Any]) -> None:
        folder = Path(target["folder"])
        with _standing(target):
            used = sum(file.stat().st_blocks * 512 for file in folder.rglob("*"))
            before = folder.with_name(f"{folder.name}.before")
            shutil.copytree(folder, before, dirs_exist_ok=True)
            _run("mount", "-t", "tmpfs", "-o", f"size={used * 2 + SPACE},mode=700", "streamproof", str(folder))
            shutil.copytree(before, folder, dirs_exist_ok=True)
            shutil.rmtree(before)
            _fill(folder / BALLAST)

    def took_effect(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        filesystem, folder = os.statvfs(target["folder"]), Path(target["folder"]).name
        free = f"{filesystem.f_bavail} of {filesystem.f_blocks} blocks"
        return [EvidenceCheck(f"no space is left in the folder {folder!r}", filesystem.f_bavail == 0, free)]

    def answers(self, testbed: Testbed, target: dict[str, Any]) -> list[bool]:
        return [_writable(Path(target["folder"]) / PROBE)]

    def undo(self, testbed: Testbed, target: dict[str, Any]) -> None:
        folder = Path(target["folder"])
        if not os.path.ismount(folder):
            return
        if target["rests"] is not None:  # the job needs room for as long as it takes to come to rest
            _run("mount", "-o", f"remount,size={ROOM}", str(folder))
        (folder / BALLAST).unlink(missing_ok=True)
        below = folder.with_name(f"{folder.name}.below")
        below.mkdir(exist_ok=True)
        with _standing(target):
            # A bind mount of the folder above does not take along what is mounted inside of it: there lies the folder of before.
            _run("mount", "--bind", str(folder.parent), str(below))
            try:
                _mirror(folder, below / folder.name)
            finally:
                _run("umount", str(below))
            _run("umount", "--lazy", str(folder))
        below.rmdir()

    def evidence(self, run: RunContext, parameters: FullDiskParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        checks = super().evidence(run, parameters, target)
        run.eventually(lambda: bool(ended_saying(run.folder, target["start"], [SAYS])), EVIDENCE_S)
        starts = ended_saying(run.folder, target["start"], [SAYS])
        return [*checks, EvidenceCheck(f"a driver ended with {SAYS!r}", bool(starts), f"starts {starts or 'none'}")]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        mounted = Path(target["folder"])
        return [
            *super().heal(testbed, folder, target),
            EvidenceCheck("nothing is mounted there", not os.path.ismount(mounted), str(mounted)),
        ]


@contextlib.contextmanager
def _standing(target: dict[str, Any]) -> Iterator[None]:
    """No process of the driver goes on while the body runs; where a table's folder is moved, none of its tasks writes either: the driver
    stands between two batches, or is gone. One that does not come to rest in time is ended."""
    if target["rests"] is None:
        with driver_stopped(_driver(target)):
            yield
        return
    deadline, checkpoint = time.monotonic() + REST_S, Path(target["rests"])
    while time.monotonic() < deadline:
        processes = failpoints.driver_processes(_driver(target))
        if processes and at_rest(checkpoint) is None:
            time.sleep(WATCH_S)
            continue
        with stopped(processes):
            if not processes or at_rest(checkpoint) is not None:
                yield
                return
    for process in failpoints.driver_processes(_driver(target)):
        process.kill()
    yield


def _driver(target: dict[str, Any]) -> dict[str, Any]:
    """The driver that there is now: perhaps another than the one when the fault was injected."""
    file = Path(target["driver_file"])
    return dict(RunFolder(file.parent).read_json(file))


def _fill(ballast: Path) -> None:
    with open(ballast, "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def _writable(probe: Path) -> bool:
    try:
        probe.write_bytes(bytes(4096))
        return True
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    finally:
        probe.unlink(missing_ok=True)


def _mirror(source: Path, copy: Path) -> None:
    """Make ``copy`` what ``source`` is."""
    shutil.copytree(source, copy, dirs_exist_ok=True)
    for path in sorted(copy.rglob("*"), reverse=True):
        if not (source / path.relative_to(copy)).exists():
            path.rmdir() if path.is_dir() else path.unlink()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestbedError(f"{' '.join(command)}: {done.stderr.strip()}")
