"""What a job computes from what it reads, as an experiment says it: ``results``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamproof import settings
from streamproof.errors import BadInput

Column = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]


class Results(BaseModel):
    """The job delivers results instead of records. A query of the user's own computes them again from what the job was given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: tuple[Column, ...] = Field(min_length=1, max_length=8, description="The fields or columns that say what a result is about")
    values: tuple[Column, ...] = Field(min_length=1, max_length=20, description="Those that say what it is")
    reference: str = Field(
        min_length=1, description="A file of SQL (DuckDB's), from the project's folder: it computes them from the table `input`"
    )
    final: bool = Field(
        False,
        description="Whether a later result replaces an earlier one of the same key: the last one counts then; else each comes once",
    )

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        twice = [name for name in (*self.key, *self.values) if (*self.key, *self.values).count(name) > 1]
        if twice:
            raise ValueError(f"{twice[0]} is named more than once in `key` and `values`")
        return self

    def sql(self) -> str:
        """The reference. Raises BadInput when its file cannot be read."""
        path: Path = settings.project() / self.reference
        try:
            return path.read_text().strip().removesuffix(";")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"job: results: reference cannot be read: {error}") from error
