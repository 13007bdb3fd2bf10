"""Becomes the JobManager, which goes on from the newest checkpoint that is whole: ``python -m streamproof.engines.flink.restored``.

The JobManager of a job that runs beside another begins once that one has completed some checkpoints, as a job does that is deployed later.

A checkpoint, or a savepoint, is whole once its ``_metadata`` is there. That is written last: its time says which is the newest.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

BEFORE_ANOTHER = 4
"""So many checkpoints a job has completed before the one beside it begins."""
LONGEST_S, LOOK_S = 300.0, 0.1


def newest(folder: Path) -> Path | None:
    """The newest whole checkpoint or savepoint in a job's folder of them; None when there is none."""
    whole = [*folder.glob("chk-*/_metadata"), *folder.glob("savepoint-*/_metadata")]
    found = max(whole, key=lambda path: path.stat().st_mtime_ns, default=None)
    return None if found is None else found.parent


def newest_number(folder: Path) -> int:
    """The number of the newest whole checkpoint; 0 when there is none."""
    return max((number(path.parent) for path in folder.glob("chk-*/_metadata")), default=0)


def number(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("chk-"))


def wait_for(folder: Path) -> None:
    """Until the job whose checkpoints are kept there has completed some. Raises TimeoutError."""
    until = time.monotonic() + LONGEST_S
    while newest_number(folder) < BEFORE_ANOTHER:
        if time.monotonic() > until:
            raise TimeoutError(f"{folder}: expected {BEFORE_ANOTHER} checkpoints of the other job within {LONGEST_S:.0f} s")
        time.sleep(LOOK_S)


def main() -> None:
    folder, said = Path(sys.argv[1]), json.loads(sys.argv[2])
    if said["later_than"]:
        wait_for(Path(said["later_than"]))
    found = newest(folder)
    restore = ["--fromSavepoint", found.as_uri()] if found is not None else []
    print(f"job-manager: {'goes on from ' + found.name if found is not None else 'begins'}", flush=True)
    command = [*said["before"], *restore, *said["after"]]
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
