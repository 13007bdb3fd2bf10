"""What faults ask of the job's table, whichever format it has.

A job of a user's own may write a Delta table and read it again, beside its output: a fault that takes ``table`` strikes that one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from streamproof.faults.fault import Parameters, RunContext, Unconditional
from streamproof.jobs.profile import JobProfile, Trait
from streamproof.sinks.own_schema import schema_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

PATH = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$"
FORMATS = frozenset({Trait.DELTA_TABLE, Trait.ICEBERG_TABLE})


def check(fault: str, profile: JobProfile) -> None:
    """Raises ValueError when the job delivers to no table of either format."""
    if not FORMATS & profile.traits:
        raise ValueError(f"{fault}: a job with {profile.name!r} has no table of Delta or Iceberg")


class TableParameters(Parameters):
    table: str | None = Field(
        None,
        pattern=PATH,
        description="Of a job of your own: another Delta table that it writes and reads, as a path below `{state_folder}`; its output "
        "when absent",
    )


class DeltaTableFault(Unconditional):
    """A fault of a Delta table: the output, or the one that its parameters name."""

    target = "the table"
    parameters_model: type[Parameters] = TableParameters
    of_traits = frozenset({Trait.DELTA_TABLE})
    occupies = frozenset({"the table"})

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        if parameters.get("table") is None:
            super().check(profile, parameters)
        elif not profile.of_a_user:
            raise ValueError(f"{self.name}: table: a job with {profile.name!r} has no table but its output; leave it out")


def folder(run: RunContext, parameters: Parameters | None = None) -> Path:
    """Where a Delta table of the job is: its output, or the one that the parameters name."""
    named = parameters.table if isinstance(parameters, TableParameters) else None
    return run.job.state / named if named is not None else run.job.files / run.job.output.get("path", "")


def newest(run: RunContext) -> int | None:
    """The number of the newest version of the output; None where there is no table yet."""
    if Trait.DELTA_TABLE in run.profile.traits:
        from streamproof.sinks.delta import log

        versions = log.versions(folder(run))
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
