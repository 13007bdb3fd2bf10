"""What a user says of a workload: its source, how many records, at which rate, and how late its events come."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamproof import settings
from streamproof.evidence.locations import Location
from streamproof.jobs.state_store import StateStore
from streamproof.load import files


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_enum_values=False)


class Source(StrEnum):
    """``flights``: real flights of 2013 as JSON events (at most 336,776); ``synthetic``: seeded events, for volume."""

    FLIGHTS = "flights"
    SYNTHETIC = "synthetic"


class InputFile(Strict):
    """A file of the user's own, whose rows are sent."""

    path: str = Field(
        min_length=1,
        description="A .jsonl, .ndjson, .csv or .parquet file, from the project's folder; one of `streamproof record`; or a .json file "
        "with a JSON Schema, by which records are made",
    )
    key: str | None = Field(None, min_length=1, description="The field that is the record's key; the row's number when absent")

    avro: str | None = Field(None, min_length=1, description="Write each row as Avro by the schema of this .avsc file; as JSON when absent")

    @property
    def found(self) -> Path:
        return settings.project() / self.path

    @property
    def schema_file(self) -> Path | None:
        return None if self.avro is None else settings.project() / self.avro


class Workload(Strict):
    """What is sent: ``records`` in all, over ``partitions``, at most ``rate_per_s`` (0: as fast as the phases allow)."""

    source: Source = Field(Source.FLIGHTS, description="flights: real flights of 2013, at most 336,776; synthetic: any number of events")
    file: InputFile | None = Field(None, description="Send the rows of this file, in its order, instead of a source")
    records: int = Field(
        20_000, ge=100, le=50_000_000, description="How many records are sent; with a `file` of rows all of them when absent"
    )
    partitions: int = Field(4, ge=1, le=64, description="Partitions of the input topic at the start, and of the output topic")
    rate_per_s: int = Field(0, ge=0, le=10_000_000, description="The most records sent a second, 0 for no bound")

    @model_validator(mode="before")
    @classmethod
    def _as_many_as_the_file_has(cls, data: Any) -> Any:
        """A stored experiment says how many records there were: it can be judged again without the file."""
        if not isinstance(data, dict) or data.get("file") is None or "records" in data:
            return data
        file = InputFile.model_validate(data["file"])
        if files.endless(file.found):
            return data
        return {**data, "records": files.count(file.found, file.key)}

    def check(self, location: Location) -> None:
        """Raises NotReadable when the file cannot be sent with the identity at ``location``, or has fewer records than are to be sent."""
        if self.file is None:
            return
        rows = None if files.endless(self.file.found) else files.count(self.file.found, self.file.key)
        if rows is not None and rows < self.records:
            raise files.NotReadable(f"{self.file.path} has {rows} records, {self.records} were asked for")
        files.check(self.file.found, self.file.key, location, self.file.schema_file)

    @property
    def described(self) -> str:
        """What is sent, in a few words."""
        if self.file is None:
            return f"{self.records} {self.source} records"
        return f"{self.records} records {'made by' if files.endless(self.file.found) else 'of'} {self.file.path}"

    @model_validator(mode="after")
    def _enough_flights(self) -> Self:
        if self.file is not None:
            return self
        if self.source is Source.FLIGHTS and self.records > 336_776:
            raise ValueError(f"the flights workload has 336776 records, {self.records} were asked for: use source 'synthetic'")
        return self


class Stateful(Strict):
    """What a stateful pipeline computes, and how late its events come; times in minutes of event time."""

    window_min: int = Field(
        60, ge=1, le=10_080, description="Length of a window; the gap that ends a session; how far from a flight a join looks"
    )
    slide_min: int | None = Field(
        None, ge=1, le=10_080, description="A window begins every so many minutes; its length when absent (tumbling)"
    )
    delay_min: int = Field(1440, ge=0, le=100_000, description="The declared delay: what comes no later than that is to count")
    job_delay_min: int | None = Field(
        None,
        ge=0,
        le=100_000,
        description="The delay that the job sets; the declared one when absent. A smaller one drops what was to count",
    )
    disorder_min: int = Field(1200, ge=0, le=100_000, description="One event in five comes up to so much late")
    state_store: StateStore = Field(
        StateStore.DEFAULT, description="Where Spark keeps the state: in memory, with files of changes (its default), or in RocksDB"
    )
    late_share: float = Field(0.01, ge=0, le=0.5, description="The share of events that come later than the declared delay")

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if self.slide_min is not None and self.slide_min > self.window_min:
            raise ValueError(
                f"slide_min: {self.slide_min} is more than the window of {self.window_min}: events between two would be left out"
            )
        return self

    @property
    def slide(self) -> int:
        return self.slide_min or self.window_min
