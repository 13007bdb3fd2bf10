"""The second reading of an output: by a plain client, from the same output, to the same end; kept in ``delivered_again/``."""

from __future__ import annotations

from typing import Any

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.second_reading import MOST_RECORDS, SecondReading, everything, sample
from streamproof.jobs.job import Job
from streamproof.sinks import outputs, payloads
from streamproof.testbed.embedded import Testbed


def read_again(folder: RunFolder, job: Job, testbed: Testbed, drained: dict[str, Any], seed: int, timeout_s: float) -> None:
    """Write ``delivered_again/``: of an output that is large, stretches that ``seed`` chooses. ``drained`` is what the drain wrote down.

    The end of each partition is asked for again; what lies behind the end that the drain found is not read, but the two ends are compared.
    """
    own = outputs.of(job).ends_again(job, testbed, timeout_s)
    ends, whole = payloads.nearer(own, drained), drained["records"] <= MOST_RECORDS
    stretches = everything(ends) if whole else sample(ends, seed, MOST_RECORDS)
    records = payloads.keep(folder, folder.delivered_again, job, testbed, stretches, timeout_s)
    SecondReading(whole, records, own, stretches).write(folder)
