"""What faults ask of the job's table, whichever format it has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streamproof.faults.fault import RunContext
from streamproof.jobs.profile import JobProfile, Trait
from streamproof.sinks.own_schema import schema_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

FORMATS = frozenset({Trait.DELTA_TABLE, Trait.ICEBERG_TABLE})


def check(fault: str, profile: JobProfile) -> None:
    """Raises ValueError when the job delivers to no table of either format."""
    if not FORMATS & profile.traits:
        raise ValueError(f"{fault}: a job with {profile.name!r} has no table of Delta or Iceberg")


def newest(run: RunContext) -> int | None:
    """The number of the table's newest version; None where there is no table yet."""
    if Trait.DELTA_TABLE in run.profile.traits:
        from streamproof.sinks.delta import log

        versions = log.versions(run.job.files)
        return versions[-1].number if versions else None
    from streamproof.sinks.iceberg import metadata

    current = metadata_file(run)
    snapshots = metadata.snapshots(current) if current is not None else []
    return snapshots[-1].number if snapshots else None


def metadata_file(run: RunContext) -> Path | None:
    """The current metadata file of an Iceberg table."""
    from streamproof.sinks.iceberg.table import NAMESPACE, TABLE, catalog

    return catalog(run.job, run.testbed.direct_postgres).metadata(NAMESPACE, TABLE)


def opened(run: RunContext) -> Table:
    """The Iceberg table as another writer than the job opens it."""
    from streamproof.sinks.iceberg.catalog import opened as table_of
    from streamproof.sinks.iceberg.table import NAMESPACE, TABLE

    return table_of(run.testbed.direct_postgres, schema_of(run.job), f"{NAMESPACE}.{TABLE}")
