"""How often a job is to deliver each record that it reads, as an experiment says it: ``expected``."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Sql = Annotated[str, Field(min_length=1, max_length=2000)]


class CountTable(BaseModel):
    """A table of the user's own that has a row for each record that is due, found by one of its fields. What has none is not to be
    delivered."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(min_length=1, description="A .parquet, .csv, .jsonl or .ndjson file, from the project's folder")
    key: str = Field("id", min_length=1, description="The field of the record that finds its row: the column has the same name")
    count: str | None = Field(None, min_length=1, description="The column that says how often; once when absent")


class ExpectedCounts(BaseModel):
    """Conditions and numbers are SQL (DuckDB's) over the fields of what is sent. Several of them are multiplied."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    filter: Sql | None = Field(None, description="A condition: only records for which it is true are to be delivered")
    explode: Sql | Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="How often each is to be delivered: a number, or an expression as in len(items)"
    )
    table: CountTable | None = Field(None, description="A table with the records that are to be delivered, and how often")

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if self.table is None and self.filter is None and self.explode is None:
            raise ValueError("expected one of `filter`, `explode` and `table`, came none of them")
        return self

    @property
    def several(self) -> bool:
        """Whether a record may be due more than once."""
        return self.explode is not None or (self.table is not None and self.table.count is not None)
