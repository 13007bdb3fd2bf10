"""The engine of a job. Not in the package itself: each Python process of a Spark task imports that, and needs no list of engines."""

from __future__ import annotations

from streamproof import registry
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.jobs.engine import Engine
from streamproof.jobs.job import Job


def engine_of(job: Job) -> Engine:
    """The engine of a job. Raises EvidenceError when it is not installed here."""
    try:
        engine: Engine = registry.registered("engines")[job.engine]
    except KeyError:
        names = ", ".join(registry.registered("engines"))
        raise EvidenceError(f"{job.folder}/job.json: there is no engine {job.engine!r} here; there are: {names}") from None
    return engine


def read_job(folder: RunFolder, start: int = 0) -> Job:
    """The job of a run, with all that its engine knows of it. Raises EvidenceError when the folder has no job."""
    return engine_of(Job.read(folder)).job_type.read(folder, start)
