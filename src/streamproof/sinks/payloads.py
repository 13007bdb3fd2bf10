"""What the delivered records say, kept beside ``delivered/`` for a run that is judged by it: read from the same output, to the same end."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.payloads import PAYLOADS, write_payloads
from streamproof.jobs.job import Job
from streamproof.sinks import outputs
from streamproof.sinks.sink import Row
from streamproof.testbed.embedded import Testbed

FILE_RECORDS = 200_000


def keep(folder: RunFolder, into: Path, job: Job, testbed: Testbed, drained: dict[str, Any], timeout_s: float) -> None:
    """Write the folder ``into``. ``drained`` is what the drain said: its ends are these ends. Repeating it starts over."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    rows = outputs.of(job).rows(job, testbed, folder.name, drained, timeout_s)
    for number, part in enumerate(_parts(rows)):
        write_payloads(into, number, {name: [row[at] for row in part] for at, name in enumerate(PAYLOADS.names)})


def _parts(rows: Iterable[Row]) -> Iterator[list[Row]]:
    part: list[Row] = []
    for row in rows:
        part.append(row)
        if len(part) == FILE_RECORDS:
            yield part
            part = []
    yield part
