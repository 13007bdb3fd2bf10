"""``full_disk``: the disk with the checkpoint has no space left for a while.

The model: a volume that fills up with logs, a quota. Spark cannot plan or commit a micro-batch and the query fails; so does a strategy that
keeps decisions beside the checkpoint. A driver that is started again fails again, until somebody makes room. What was begun meanwhile must
be neither lost nor doubled; half-written files must not be taken for whole ones.

While the driver is stopped (SIGSTOP), the checkpoint is copied onto a small file system in memory (tmpfs), which is mounted in its place
and filled up. Healing copies it back and takes the file system away.

Evidence: a probe of 4 KiB is refused with ENOSPC all the while, a driver ended and its log names it, the job commits nothing meanwhile, and
goes on afterwards. Only root can mount: elsewhere the run is refused before it starts.
Checked against: Linux (mount(2)), Spark 4.1 (``CheckpointFileManager`` writes beside and renames).
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.faults.ended import ended_saying
from streamproof.faults.fault import DRIVER, STALL, EvidenceCheck, FaultError, RunContext
from streamproof.faults.outage import EVIDENCE_S, Outage, OutageParameters
from streamproof.faults.process.hold import driver_stopped
from streamproof.jobs.failpoint import Site
from streamproof.jobs.profile import JobProfile, Trait
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.process import TestbedError

SPACE = 1 << 20
BALLAST, PROBE = ".ballast", ".probe"
SAYS = "No space left on device"


class FullDisk(Outage):
    what = "the checkpoint's disk"
    name = "full_disk"
    summary = "Leave no space on the disk with the checkpoint"
    target = "the checkpoint"
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

    def aim(self, run: RunContext, parameters: OutageParameters) -> dict[str, Any]:
        target = {
            "role": self.target,
            "checkpoint": str(run.folder.checkpoint.absolute()),
            "driver_file": str(run.folder.path / "driver.json"),
            "start": run.driver()["start"],
        }
        if not all(self.answers(run.testbed, target)):
            raise FaultError(f"{self.what} is full before the fault was injected")
        return target

    def take_down(self, testbed: Testbed, target: dict[str, Any]) -> None:
        checkpoint = Path(target["checkpoint"])
        with driver_stopped(_driver(target)):
            used = sum(file.stat().st_blocks * 512 for file in checkpoint.rglob("*"))
            before = checkpoint.with_name(f"{checkpoint.name}.before")
            shutil.copytree(checkpoint, before, dirs_exist_ok=True)
            _run("mount", "-t", "tmpfs", "-o", f"size={used * 2 + SPACE},mode=700", "streamproof", str(checkpoint))
            shutil.copytree(before, checkpoint, dirs_exist_ok=True)
            shutil.rmtree(before)
            _fill(checkpoint / BALLAST)

    def took_effect(self, run: RunContext, target: dict[str, Any]) -> list[EvidenceCheck]:
        filesystem = os.statvfs(target["checkpoint"])
        return [
            EvidenceCheck(
                "no space is left beside the checkpoint", filesystem.f_bavail == 0, f"{filesystem.f_bavail} of {filesystem.f_blocks} blocks"
            )
        ]

    def answers(self, testbed: Testbed, target: dict[str, Any]) -> list[bool]:
        return [_writable(Path(target["checkpoint"]) / PROBE)]

    def undo(self, testbed: Testbed, target: dict[str, Any]) -> None:
        checkpoint = Path(target["checkpoint"])
        if not os.path.ismount(checkpoint):
            return
        below = checkpoint.with_name(f"{checkpoint.name}.below")
        below.mkdir(exist_ok=True)
        with driver_stopped(_driver(target)):
            (checkpoint / BALLAST).unlink(missing_ok=True)
            # A bind mount of the folder above does not take along what is mounted inside of it: there lies the checkpoint of before.
            _run("mount", "--bind", str(checkpoint.parent), str(below))
            try:
                _mirror(checkpoint, below / checkpoint.name)
            finally:
                _run("umount", str(below))
            _run("umount", "--lazy", str(checkpoint))
        below.rmdir()

    def evidence(self, run: RunContext, parameters: OutageParameters, target: dict[str, Any]) -> list[EvidenceCheck]:
        checks = super().evidence(run, parameters, target)
        run.eventually(lambda: bool(ended_saying(run.folder, target["start"], [SAYS])), EVIDENCE_S)
        starts = ended_saying(run.folder, target["start"], [SAYS])
        return [*checks, EvidenceCheck(f"a driver ended with {SAYS!r}", bool(starts), f"starts {starts or 'none'}")]

    def heal(self, testbed: Testbed, folder: RunFolder, target: dict[str, Any]) -> list[EvidenceCheck]:
        mounted = Path(target["checkpoint"])
        return [
            *super().heal(testbed, folder, target),
            EvidenceCheck("nothing is mounted there", not os.path.ismount(mounted), str(mounted)),
        ]


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
