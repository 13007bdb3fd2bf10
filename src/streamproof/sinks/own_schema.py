"""The schema that a job of a user's own has in PostgreSQL: what it creates without naming a schema lies there, and goes with the run."""

from __future__ import annotations

import re
import zlib

from streamproof.jobs.job import Job

LONGEST = 50


def schema_of(job: Job) -> str:
    """A name that needs no quotes anywhere."""
    name = re.sub("[^a-z0-9]", "_", job.name.lower())
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}_{zlib.crc32(name.encode()):08x}"
