"""Temporary folders of what gets killed: of a run's job, and of a testbed's Spark workers.

Spark, its native libraries and many a program of a user's own take away what they have put into the machine's temporary folder as they
end. One that is killed does not, and a night of kills would fill the disk. So each run has a temporary folder, which its starts share as
they would share the machine's, and so has each testbed. It ends with them. Its path is short, however deep they lie: Spark's Python workers
listen in it, and the address of a Unix socket has 107 bytes at most.
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
from streamproof.testbed import java


def variables(of: Path, before: Mapping[str, str]) -> dict[str, str]:
    """What a program's environment gets besides ``before``, so that it uses the temporary folder of the run or testbed in ``of``."""
    return java.temporary(folder(of), before)


def make(of: Path) -> None:
    """So that only its owner may enter. May be repeated. Raises BadInput when something else is in its place."""
    path = folder(of)
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise BadInput(f"{path}: expected the temporary folder of {of}, found what somebody else has put there; remove it")


def remove(of: Path) -> None:
    """May be repeated."""
    shutil.rmtree(folder(of), ignore_errors=True)


def folder(of: Path) -> Path:
    return Path(tempfile.gettempdir()) / f"streamproof-{hashlib.sha256(str(of).encode()).hexdigest()[:12]}"
