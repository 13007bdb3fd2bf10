"""One process at a time: a file that is locked while somebody works.

The kernel frees the lock when its holder ends, however that ends; a child that inherits the file's descriptor holds it too, which is why
this is ``flock`` itself and no library: those close the descriptor to children. Only the standard library is used, for the set-up works
with it before anything is installed.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

POLL_S = 0.1


@contextmanager
def exclusive(
    path: Path, timeout_s: float, error: Callable[[str], Exception], waits: Callable[[str], object] | None = None
) -> Iterator[IO[str]]:
    """Hold ``path``, which then has this process's pid.

    ``waits`` is told once that another holds it, ``error`` makes what is raised after ``timeout_s``; both get that one's pid.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    with path.open("a+") as file:
        while not _locked(file):
            file.seek(0)
            holder = file.read().strip() or "unknown"
            if waits is not None:
                waits(holder)
                waits = None
            if time.monotonic() > deadline:
                raise error(holder)
            time.sleep(POLL_S)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield file


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
