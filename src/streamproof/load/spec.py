"""What a user says of a workload: its source, how many records, at which rate."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_enum_values=False)


class Source(StrEnum):
    """``flights``: real flights of 2013 as JSON events (at most 336,776); ``synthetic``: seeded events, for volume."""

    FLIGHTS = "flights"
    SYNTHETIC = "synthetic"


class Workload(Strict):
    """What is sent: ``records`` in all, over ``partitions``, at most ``rate_per_s`` (0: as fast as the phases allow)."""

    source: Source = Source.FLIGHTS
    records: int = Field(20_000, ge=100, le=50_000_000, description="How many records are sent")
    partitions: int = Field(4, ge=1, le=64, description="Partitions of the input topic at the start, and of the output topic")
    rate_per_s: int = Field(0, ge=0, le=10_000_000, description="The most records sent a second, 0 for no bound")

    @model_validator(mode="after")
    def _enough_flights(self) -> Self:
        if self.source is Source.FLIGHTS and self.records > 336_776:
            raise ValueError(f"the flights workload has 336776 records, {self.records} were asked for: use source 'synthetic'")
        return self
