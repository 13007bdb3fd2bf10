"""What faults ask of the job's table, whichever format it has.

A job of a user's own may write a table and read it again, beside its output: a fault that takes ``table`` strikes that one. It has the
format of the output, Delta when that is no table.
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


def check(fault: str, profile: JobProfile, formats: frozenset[Trait] = FORMATS) -> None:
    """Raises ValueError when the job delivers to no table of one of these formats."""
    if not formats & profile.traits:
        named = " or ".join(sorted(wanted.value.removesuffix(" table") for wanted in formats))
        raise ValueError(f"{fault}: a job with {profile.name!r} has no table of {named}")


class TableParameters(Parameters):
    table: str | None = Field(
        None,
        pattern=PATH,
        description="Of a job of your own: another table that it writes and reads. A Delta table by its path below `{state_folder}`; an "
        "Iceberg table, in the output's catalog, as NAMESPACE.TABLE. The output when absent",
    )


class TableFault(Unconditional):
    """A fault of a table: the output, or the one that its parameters name."""

    target = "the table"
    parameters_model: type[Parameters] = TableParameters
    formats = FORMATS
    occupies = frozenset({"the table"})

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        super().check(profile, parameters)
        table = parameters.get("table")
        if table is not None and not profile.of_a_user:
            raise ValueError(f"{self.name}: table: a job with {profile.name!r} has no table but its output; leave it out")
        if table is None or FORMATS & profile.traits:
            check(self.name, profile, self.formats)
        if table is not None and Trait.ICEBERG_TABLE in profile.traits and table.count(".") != 1:
            raise ValueError(f"{self.name}: table: expected NAMESPACE.TABLE in the catalog of the output, came {table!r}")


class DeltaTableFault(TableFault):
    formats = frozenset({Trait.DELTA_TABLE})


def folder(run: RunContext, parameters: Parameters | None = None) -> Path:
    """Where a Delta table of the job is: its output, or the one that the parameters name."""
    named = parameters.table if isinstance(parameters, TableParameters) else None
    return run.job.state / named if named is not None else run.job.output_folder


def newest(run: RunContext, parameters: Parameters | None = None) -> int | None:
    """The number of the newest version of the table; None where there is no table yet."""
    if not of_iceberg(run):
        from streamproof.sinks.delta import log

        versions = log.versions(folder(run, parameters))
        return versions[-1].number if versions else None
    from streamproof.sinks.iceberg import metadata

    current = metadata_file(run, parameters)
    snapshots = metadata.snapshots(current) if current is not None else []
    return snapshots[-1].number if snapshots else None


def of_iceberg(run: RunContext) -> bool:
    return Trait.ICEBERG_TABLE in run.profile.traits


def files(run: RunContext, parameters: Parameters | None = None) -> frozenset[Path]:
    """The files of the newest version; none where there is no table yet."""
    if not of_iceberg(run):
        from streamproof.sinks.delta import log

        return frozenset(Path(name) for name in log.active(log.versions(folder(run, parameters))))
    from streamproof.sinks.iceberg import metadata

    current = metadata_file(run, parameters)
    return frozenset(file.path for file in metadata.active(metadata.snapshots(current))) if current is not None else frozenset()


def metadata_file(run: RunContext, parameters: Parameters | None = None) -> Path | None:
    """The current metadata file of an Iceberg table."""
    from streamproof.sinks.iceberg.table import catalog

    return catalog(run.job, run.testbed.direct_postgres).metadata(*named(run, parameters))


def opened(run: RunContext, parameters: Parameters | None = None) -> Table:
    """The Iceberg table as another writer than the job opens it."""
    from streamproof.sinks.iceberg.catalog import opened as table_of

    return table_of(run.testbed.direct_postgres, schema_of(run.job), *named(run, parameters))


def named(run: RunContext, parameters: Parameters | None) -> tuple[str, str]:
    """The namespace and the name of an Iceberg table."""
    from streamproof.sinks.iceberg.table import NAMESPACE, TABLE

    chosen = parameters.table if isinstance(parameters, TableParameters) else None
    namespace, _, name = str(chosen or run.job.output.get("table") or f"{NAMESPACE}.{TABLE}").rpartition(".")
    return namespace, name
