"""What an experiment says of a job's input, its output and its progress: ``reads``, ``delivers`` and ``progress``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamproof.evidence.locations import Kind, Location
from streamproof.jobs.expected import ExpectedCounts
from streamproof.jobs.results import Results
from streamproof.sinks.outputs import SINKS

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]
NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
TABLE = r"^[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*$"
UNREAD = "streamproof-id"
"""The header that holds the identity of what a job reads that need not know it."""
Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9.-][A-Za-z0-9._-]{0,199}$")]
Choice = Annotated[str, Field(min_length=1)]


class Described(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def _one_of(described: BaseModel, names: tuple[str, ...]) -> None:
    """Raises ValueError unless exactly one of the fields is there."""
    given = [name for name in names if getattr(described, name) is not None]
    if len(given) != 1:
        known = ", ".join(type(described).model_fields[name].alias or name for name in names)
        raise ValueError(f"expected one of {known}, came {' and '.join(given) or 'none of them'}")


class Identity(Described):
    """Where a record keeps its identity: one of these."""

    header: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(None, description="A header of the record")
    key: Literal[True] | None = Field(None, description="The record's key")
    pointer: str | None = Field(None, alias="json", pattern=rf"^(/{NAME}){{1,5}}$", description="A field of the value, as in /order/id")
    column: Name | None = Field(None, description="A column of text or of uuid")
    columns: tuple[Name, Name] | None = Field(None, description="Two columns of whole numbers: the producer's, and the record's")

    @model_validator(mode="after")
    def _one(self) -> Self:
        _one_of(self, ("header", "key", "pointer", "column", "columns"))
        if self.columns is not None and self.columns[0] == self.columns[1]:
            raise ValueError(f"columns: {self.columns[0]} is named twice; name two columns")
        return self

    def location(self, whole: bool = False) -> Location:
        if self.header is not None:
            return Location(Kind.HEADER, (self.header,), whole)
        if self.key:
            return Location(Kind.KEY, (), whole)
        if self.pointer is not None:
            return Location(Kind.JSON, (self.pointer,), whole)
        return Location(Kind.COLUMNS, self.columns or (self.column or "",), whole)


class KafkaInput(Described):
    topic: Topic | None = Field(None, description="Its name, where the job has it fixed; a name of the run's own when absent")
    identity: Identity | None = Field(None, description="Where the job reads the identity; where it delivers it when absent")


class Reads(Described):
    kafka: KafkaInput = Field(default_factory=KafkaInput)


class KafkaOutput(Described):
    topic: Topic | None = Field(None, description="Its name, where the job has it fixed; a name of the run's own when absent")
    identity: Identity | None = Field(None, description="Where the job keeps it; the value begins with it when absent")
    payload: Literal["kept"] | None = Field(None, description="kept: key and value are delivered as they were read, and judged")

    @model_validator(mode="after")
    def _of_kafka(self) -> Self:
        if self.identity is not None and (self.identity.column or self.identity.columns):
            raise ValueError("identity: a record of Kafka has no columns; use `header`, `key` or `json`")
        if self.identity is None and self.payload is not None:
            raise ValueError("payload: a value that begins with its identity is always judged; give an `identity`, or leave `payload` out")
        return self


class _Rows(Described):
    identity: Identity | None = Field(None, description="The columns that hold it; not for a job that delivers `results`")

    @model_validator(mode="after")
    def _of_rows(self) -> Self:
        if self.identity is not None and not (self.identity.column or self.identity.columns):
            raise ValueError("identity: rows keep it in `column` or `columns`")
        return self


class TableOutput(_Rows):
    table: Name = Field(description="The table, without a schema: a run has a schema of its own, which is the job's search path")
    ddl: str | None = Field(None, description="A file of SQL that makes the table, from the project's folder; else the job makes it")


class _FolderOutput(_Rows):
    path: str = Field(
        "", pattern=r"^([A-Za-z0-9][A-Za-z0-9_-]*(/|$))*$", description="A folder below the run's own; {output_folder} is its name"
    )


class DeltaOutput(_FolderOutput):
    pass


class IcebergOutput(_Rows):
    table: str = Field(
        pattern=TABLE,
        description="NAMESPACE.TABLE in a JDBC catalog at {jdbc_url}, whose warehouse is {output_folder}; the job names the catalog",
    )


class IcebergFolderOutput(_Rows):
    table: str = Field(
        pattern=TABLE,
        description="NAMESPACE.TABLE in a catalog of the file system (hadoop), whose warehouse is {output_folder}",
    )


class FilesOutput(_FolderOutput):
    format: Literal["parquet", "json", "csv"] = Field(
        "parquet", description="json: an object in each line; csv: with a first line that names the columns"
    )
    escape: Literal['"', "\\"] | None = Field(
        None, description="csv: what stands before a quote inside quotes; a quote when absent, Spark's is \\\\"
    )
    spark_log: bool = Field(False, description="Read what _spark_metadata names, as Spark reads what its streaming file sink wrote")

    @model_validator(mode="after")
    def _of_csv(self) -> Self:
        if self.escape is not None and self.format != "csv":
            raise ValueError(f"escape: only csv has quotes to escape, the format is {self.format}; leave it out")
        return self


_SINKS = {
    "kafka": "kafka",
    "postgres": "postgres_rows",
    "files": "file_rows",
    "delta": "delta_rows",
    "iceberg": "iceberg_rows",
    "iceberg_folder": "iceberg_folder_rows",
}
"""The sink of each kind of output."""


class Delivers(Described):
    kafka: KafkaOutput | None = None
    postgres: TableOutput | None = None
    files: FilesOutput | None = None
    delta: DeltaOutput | None = None
    iceberg: IcebergOutput | None = None
    iceberg_folder: IcebergFolderOutput | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        _one_of(self, tuple(_SINKS))
        return self

    @property
    def sink(self) -> str:
        return next(sink for name, sink in _SINKS.items() if getattr(self, name) is not None)

    @property
    def keeps_versions(self) -> bool:
        """Whether each state of the output is a version that can be read later."""
        return SINKS[self.sink].keeps_versions

    @property
    def _described(self) -> KafkaOutput | TableOutput | FilesOutput | DeltaOutput | IcebergOutput | IcebergFolderOutput:
        found = self.kafka or self.postgres or self.files or self.delta or self.iceberg or self.iceberg_folder
        assert found is not None, "validated"
        return found

    @property
    def location(self) -> Location:
        if self.kafka is not None:
            identity = self.kafka.identity
            return Location() if identity is None else identity.location(self.kafka.payload == "kept")
        assert self._described.identity is not None, "validated"
        return self._described.identity.location()

    @property
    def identity(self) -> Identity | None:
        """What is said of where it keeps the identity."""
        return self._described.identity


class SparkCheckpoint(Described):
    spark_checkpoint: Choice = Field(description="The query's checkpoint folder; placeholders are filled in")


class Group(Described):
    group: Choice = Field(description="The consumer group, where the job has its name fixed")


Progress = Literal["group", "output"] | SparkCheckpoint | Group


def location_read(reads: Reads, delivers: Delivers, results: Results | None) -> Location:
    """Where the workload puts the identity: where the job reads it, or delivers it; out of the way of one that delivers results."""
    if reads.kafka.identity is not None:
        return reads.kafka.identity.location()
    return delivers.location if results is None else Location(Kind.HEADER, (UNREAD,), whole=False)


def location_delivered(delivers: Delivers, results: Results | None) -> Location:
    """Where the output keeps the identity; results have none, and are looked for where there is something to read."""
    if results is None:
        return delivers.location
    kafka = delivers.kafka is not None
    return Location(Kind.HEADER, (UNREAD,), whole=False) if kafka else Location(Kind.COLUMNS, results.key[:1], whole=False)


def not_judged(delivers: Delivers, expected: ExpectedCounts | None, results: Results | None, progress: Progress) -> tuple[str, ...]:
    """What cannot be judged of such a job, whatever a run shows."""
    if results is not None:
        return ("results that a later one replaced",) if results.final else ()
    missing = []
    if expected is not None and expected.several:
        missing.append("which of its deliveries a copy of a record is (they are counted)")
    if not delivers.location.whole:
        missing.append("payloads (of a record's content only its identity is known; judge the rest by a suite of your own)")
    if delivers.kafka is None:
        missing.append("which start and batch wrote a copy (only its time is known)")
    if progress == "output":
        missing.append("whether an offset was committed before its output (nobody reads the job's own offsets)")
    return tuple(missing)


def output(delivers: Delivers, ddl: str | None) -> dict[str, Any]:
    """What the sink must know of the output."""
    if delivers.postgres is not None:
        return {"table": delivers.postgres.table, "ddl": ddl}
    if delivers.delta is not None:
        return {"path": delivers.delta.path, "format": "delta"}
    if (of_iceberg := delivers.iceberg or delivers.iceberg_folder) is not None:
        return {"table": of_iceberg.table, "format": "parquet"}
    if delivers.files is not None:
        files = delivers.files
        return {"path": files.path, "format": files.format, "escape": files.escape or '"', "spark_log": files.spark_log}
    return {}
