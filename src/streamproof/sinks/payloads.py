"""What the delivered records say, kept beside ``delivered/`` for a run that is judged by it: read from the same output, to the same end."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.payloads import PAYLOADS, WITH_HEADER, write_payloads
from streamproof.evidence.second_reading import Stretch, everything
from streamproof.jobs.job import Job
from streamproof.sinks import outputs
from streamproof.sinks.sink import Row
from streamproof.testbed.embedded import Testbed

FILE_RECORDS = 200_000


def keep_all(folder: RunFolder, job: Job, testbed: Testbed, drained: dict[str, Any], timeout_s: float) -> None:
    """Write ``payloads/``. ``drained`` is what the drain wrote down: its ends are these ends."""
    ends = nearer(outputs.of(job).ends_again(job, testbed, timeout_s), drained)
    keep(folder, folder.payloads, job, testbed, everything(ends), timeout_s)


def keep(folder: RunFolder, into: Path, job: Job, testbed: Testbed, stretches: Sequence[Stretch], timeout_s: float) -> int:
    """Write the records of these stretches into the folder ``into``, and say how many they are. Repeating it starts over."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    names = (WITH_HEADER if job.location_delivered.header else PAYLOADS).names
    rows, records = outputs.of(job).rows(job, testbed, folder.name, stretches, timeout_s), 0
    for number, part in enumerate(_parts(rows)):
        write_payloads(into, number, {name: [row[at] for row in part] for at, name in enumerate(names)})
        records += len(part)
    return records


def nearer(own: Mapping[int, int], drained: Mapping[str, Any]) -> dict[int, int]:
    """How far each partition is read: to the drain's end, or to one's ``own`` where that comes first, or where the drain names none."""
    ends = {int(partition): int(end) for partition, end in drained["end_offsets"].items()}
    return {partition: min(end, ends.get(partition, 0)) if ends else end for partition, end in own.items()}


def _parts(rows: Iterable[Row]) -> Iterator[list[Row]]:
    part: list[Row] = []
    for row in rows:
        part.append(row)
        if len(part) == FILE_RECORDS:
            yield part
            part = []
    yield part
