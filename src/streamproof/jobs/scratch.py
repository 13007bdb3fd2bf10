"""The temporary folder of a run's job: what a program that is killed leaves in it ends with the run.

Spark, its native libraries and many a program of a user's own take away what they have put into the machine's temporary folder as they
end. One that is killed does not, and a night of kills would fill the disk. The starts of a run share the folder, as they would share the
machine's; its path is short, since some programs listen there, and the address of a Unix socket has 107 bytes at most.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from streamproof.errors import BadInput
from streamproof.evidence.folder import RunFolder
from streamproof.testbed import java


def variables(run: RunFolder, before: Mapping[str, str]) -> dict[str, str]:
    """The environment that a start gets besides ``before``, so that it uses the folder."""
    return java.temporary(folder_of(run), before)


def make(run: RunFolder) -> None:
    """So that only its owner may enter. May be repeated. Raises BadInput when something else is in its place."""
    folder = folder_of(run)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise BadInput(f"{folder}: expected the temporary folder of run {run.name}, found what somebody else has put there; remove it")


def remove(run: RunFolder) -> None:
    """May be repeated."""
    shutil.rmtree(folder_of(run), ignore_errors=True)


def folder_of(run: RunFolder) -> Path:
    return Path(tempfile.gettempdir()) / f"streamproof-{hashlib.sha256(str(run.path).encode()).hexdigest()[:12]}"
